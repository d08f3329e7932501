//! Matmuls with an addend, such as a residual.

use super::matrix;
use crate::build::{Build, contracted, noise, output, own, sym};
use crate::{check_on, with_matrices};
use rewire_emit::emit;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Scalar};
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Computation;

/// `[m, k] x [k, n]` of f16, plus a tensor of type `dtype`, if any.
fn added(dtype: Option<DType>, [k, n]: [usize; 2]) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(k), Dim::from(n));
    let (x, w) = (b.operand(DType::F16, vec![m.clone(), k.clone()]), b.operand(DType::F16, vec![k.clone(), n.clone()]));
    let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
    let (left, right) = (b.load(x, &[row, depth]), b.load(w, &[depth, column]));
    let mut value = b.body.dag.value(0, Scalar::F32);
    if let Some(dtype) = dtype {
        let y = b.operand(dtype, vec![m.clone(), n.clone()]);
        let y = b.load(y, &[row, column]);
        value = b.bin(BinaryOp::Add, value, y);
    }
    let outputs = own(vec![output(DType::F32, vec![m.clone(), n.clone()], vec![row, column], value)]);
    matrix(b, [m, n, k], vec![contracted(2, left, right)], outputs)
}

#[test]
fn what_is_added_to_a_product_is_loaded_ahead() {
    let target = with_matrices(16, 32);
    let emitted = |dtype, sizes| emit(&added(dtype, sizes), &target, &Tuning::default()).unwrap().wgsl;
    assert!(!emitted(None, [48, 64]).contains("Ahead"), "there is nothing to load");
    // With f16 and `k = 64`, the addend would be loaded during the last stages, into their registers. With `k = 50`
    // there are too few.
    for (dtype, k) in [(DType::F32, 64), (DType::F16, 50)] {
        let wgsl = emitted(Some(dtype), [k, 64]);
        let finish = wgsl.split("fn finish(").nth(1).and_then(|text| text.split("\n}").next()).unwrap();
        assert!(finish.contains("loaded: Ahead") && finish.contains("loaded.v"), "{wgsl}");
        assert!(!finish.contains("load4_2") && !finish.contains("load_2"), "{wgsl}");
        // The addends of eight rounds are loaded before the results are computed, and each later one between staging a
        // round and writing its results.
        let main = wgsl.split("fn main(").nth(1).unwrap();
        let rounds: Vec<&str> = main.split("coopStoreT(").skip(1).collect();
        let is_last = |round: &&str| !round.contains("ahead(");
        assert!(rounds.len() > 1 && main.split("coopStoreT(").next().unwrap().contains("= ahead("), "{wgsl}");
        let stores: Vec<&&str> = rounds.iter().filter(|round| round.contains("finish(")).collect();
        assert_eq!(stores.iter().filter(|round| is_last(round)).count(), stores.len().min(8), "{wgsl}");
        for round in stores.iter().filter(|round| !is_last(round)) {
            assert!(round.find("ahead(") < round.find("finish("), "{wgsl}");
        }
    }
    check_added(DType::F32, [48, 64]);
}

#[test]
fn f16_added_to_a_product_is_loaded_during_its_last_stages() {
    let target = with_matrices(16, 32);
    let wgsl = emit(&added(Some(DType::F16), [64, 64]), &target, &Tuning::default()).unwrap().wgsl;
    let main = wgsl.split("fn main(").nth(1).unwrap();
    let (stages, results) = main.split_once("let pitch = STAGE_PITCH;").unwrap();
    assert!(stages.contains("} else {") && stages.contains("= streamed("), "{wgsl}");
    assert!(results.contains("finish(") && !results.contains("streamed(") && !results.contains("ahead("), "{wgsl}");
    for sizes in [[64, 64], [32, 64], [128, 50], [192, 130]] {
        check_added(DType::F16, sizes);
    }
}

/// Checks matmuls with few and with many rows.
fn check_added(dtype: DType, [k, n]: [usize; 2]) {
    let kernel = added(Some(dtype), [k, n]);
    for rows in [5, 70] {
        let data = [noise(DType::F16, &[rows, k], 1), noise(DType::F16, &[k, n], 2), noise(dtype, &[rows, n], 3)];
        for (matrix, subgroup) in [(8, 8), (16, 32)] {
            let target = with_matrices(matrix, subgroup);
            check_on(&format!("{rows}x{k}x{n}"), &kernel, &data, &[(0, rows as i64)], &target, &Tuning::default());
        }
    }
}
