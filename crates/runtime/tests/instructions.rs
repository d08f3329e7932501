//! Kernels on the CPU with each instruction set of this processor forced in turn.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, Graph, HostTensor, Scope};
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::cpu::Arch;
use rewire_runtime::{Inputs, Kernel, Model, ModelOptions, Session};
use std::collections::HashMap;

const DEPTH: usize = 600;

fn noise(seed: u64, count: usize) -> Vec<f64> {
    let word = |n: u64| (n + seed * 977).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    (0..count as u64).map(|n| word(n * n + 3 * n) as f64 / (1 << 23) as f64 - 1.0).collect()
}

/// A norm, a product, functions, sums and random numbers, row by row; tables of f16 and of rows of 8 bits.
fn graph(width: usize) -> Graph {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let x = scope.input("x", DType::F32, &[rows.clone(), DEPTH.into()]);
    let ids = scope.input("ids", DType::I32, std::slice::from_ref(&rows));
    let seed = scope.input("seed", DType::I64, &[]);
    let [scale, shift] = ["scale", "shift"].map(|name| scope.parameter(name, DType::F32, &[DEPTH.into()]));
    let weight = scope.parameter("weight", DType::F32, &[DEPTH.into(), width.into()]);
    let tables = [("halves", DType::F16), ("bytes", DType::Rows8)]
        .map(|(name, dtype)| scope.parameter(name, dtype, &[9.into(), width.into()]).gather(&ids));
    let y = x.layer_norm(&scale, &shift, 1e-6).matmul(&weight).silu();
    let looked_up = (&tables[0].cast(DType::F32) + &tables[1].cast(DType::F32)).gelu_tanh();
    let drawn = scope.scalar(DType::F32, 1.0).broadcast(&[rows, DEPTH.into()]);
    let drawn = drawn.dropout(0.3, &seed);
    let outputs = [("sum", y.sum(1)), ("y", y), ("looked up", looked_up), ("drawn", drawn)];
    scope.finish(&outputs).unwrap()
}

fn session(graph: Graph, width: usize) -> Session {
    let tensor = |dtype, seed, shape: &[usize]| {
        HostTensor::from_f64(dtype, shape.to_vec(), &noise(seed, shape.iter().product())).unwrap()
    };
    let parameters = HashMap::from([
        ("scale".to_owned(), tensor(DType::F32, 1, &[DEPTH])),
        ("shift".to_owned(), tensor(DType::F32, 2, &[DEPTH])),
        ("weight".to_owned(), tensor(DType::F32, 3, &[DEPTH, width])),
        ("halves".to_owned(), tensor(DType::F16, 4, &[9, width])),
        ("bytes".to_owned(), tensor(DType::F32, 5, &[9, width]).stored_as(DType::Rows8).unwrap()),
    ]);
    let plan = lower(&optimize(graph).unwrap().0).unwrap();
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    Model::load(plan, &parameters, options).unwrap().session()
}

/// The results of some rows, by name.
fn run(session: &mut Session, first: usize, rows: usize) -> HashMap<&'static str, Vec<f32>> {
    let x = noise(6, 200 * DEPTH)[first * DEPTH..][..rows * DEPTH].to_vec();
    let ids: Vec<f64> = (first..first + rows).map(|row| (row * row % 9) as f64).collect();
    let inputs: Inputs = [
        ("x", HostTensor::from_f64(DType::F32, vec![rows, DEPTH], &x).unwrap()),
        ("ids", HostTensor::from_f64(DType::I32, vec![rows], &ids).unwrap()),
        ("seed", HostTensor::from_f64(DType::I64, vec![], &[71.0]).unwrap()),
    ]
    .into_iter()
    .collect();
    let outputs = session.run(&inputs).unwrap();
    ["sum", "y", "looked up", "drawn"].map(|name| (name, outputs.get(name).unwrap().to_f32())).into()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn rows_have_the_same_bits_alone_and_in_a_batch_with_all_instructions() {
    for width in [1, 25, 64] {
        let mut session = session(graph(width), width);
        let mut first: Option<HashMap<&str, Vec<f32>>> = None;
        for arch in Arch::all() {
            arch.select();
            let whole = run(&mut session, 0, 200);
            for rows in [1, 2, 3, 5, 16, 49, 100] {
                let part = run(&mut session, 7, rows);
                for (name, columns) in [("sum", 1), ("y", width), ("looked up", width)] {
                    let expected = &whole[name][7 * columns..][..rows * columns];
                    assert_eq!(bits(&part[name]), bits(expected), "{}: {name} of {rows} rows, {width}", arch.name());
                }
            }
            let first = first.get_or_insert_with(|| whole.clone());
            assert_eq!(whole["drawn"], first["drawn"], "{}", arch.name());
            assert!([0.0, 1.0 / 0.7].iter().all(|value| whole["drawn"].contains(value)));
            for name in ["sum", "y", "looked up"] {
                let largest = first[name].iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
                for (value, other) in whole[name].iter().zip(&first[name]) {
                    assert!((value - other).abs() <= 1e-5 * largest, "{}: {name} {value} {other}", arch.name());
                }
            }
        }
    }
    Arch::all()[0].select();
}
