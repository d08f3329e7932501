//! Table lookups by ids, as single rows and pooled by sample: results are identical to the bit for all tiles.

use crate::build::{Build, combined, indices, noise, output, own, sym};
use crate::device::device;
use crate::segmented_reduce::offsets;
use crate::tensor::Tensor;
use crate::{check_on, tuning::bits};
use rewire_emit::{candidates, emit};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Scalar, Symbol};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::{Axis, Computation, Extent, Nest, ReduceOp};
use std::collections::HashMap;

const HEIGHT: usize = 37;
/// Widths of rows, with the dtypes of the table and the result.
const ROWS: [(usize, DType, DType); 7] = [
    (25, DType::F32, DType::F32),
    (260, DType::F32, DType::F16),
    (52, DType::F16, DType::F32),
    (50, DType::Rows8, DType::F16),
    (128, DType::Rows8, DType::F32),
    (4, DType::Rows4, DType::F32),
    (132, DType::Rows4, DType::F16),
];

/// Looked-up rows of a table, doubled.
fn rows(width: usize, table: DType, result: DType) -> Computation {
    let mut b = Build::default();
    let shape: Vec<Dim> = vec![sym(0), width.into()];
    let ids = b.operand(DType::I32, vec![sym(0)]);
    let table = b.operand(table, vec![HEIGHT.into(), width.into()]);
    let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
    let id = b.load(ids, &[i]);
    let entry = b.load(table, &[id, j]);
    let two = b.float(2.0);
    let entry = b.bin(BinaryOp::Mul, entry, two);
    let outputs = vec![output(result, shape.clone(), vec![i, j], entry)];
    Computation::of(Nest::map(b.body, shape, own(outputs))).unwrap()
}

/// Sums and maxima, at least 0, of the rows that the ids of each sample look up.
fn bags(width: usize, table: DType, result: DType) -> Computation {
    let mut b = Build::default();
    let shape: Vec<Dim> = vec![sym(0), width.into()];
    let ids = b.operand(DType::I32, vec![sym(1)]);
    let table = b.operand(table, vec![HEIGHT.into(), width.into()]);
    let starts = b.host(vec![sym(0) + 1.into()]);
    let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
    let n = b.body.dag.coord(2, None);
    let start = b.load(starts, &[i]);
    let row = b.bin(BinaryOp::Add, start, n);
    let id = b.load(ids, &[row]);
    let entry = b.load(table, &[id, j]);
    let [sum, largest] = [0, 1].map(|n| b.body.dag.value(n, Scalar::F32));
    let zero = b.float(0.0);
    let outputs = [sum, b.bin(BinaryOp::Max, largest, zero)];
    let outputs = outputs.map(|value| output(result, shape.clone(), vec![i, j], value));
    let mut axes = Axis::points(shape);
    axes.push(Axis::sum(Extent::Ragged { offsets: starts }));
    let accumulations = [ReduceOp::Sum, ReduceOp::Max].map(|op| combined(op, 2, entry)).to_vec();
    Computation::of(Nest { body: b.body, axes, accumulations, outputs: own(outputs.to_vec()) }).unwrap()
}

/// Checks a kernel with each tuning against the reference, and that results are identical to the bit.
fn hold(name: &str, kernel: &Computation, operands: &[Tensor], symbols: &[(u32, i64)], tunings: &[&str]) {
    let known: HashMap<Symbol, i64> = symbols.iter().map(|&(symbol, size)| (Symbol(symbol), size)).collect();
    let (mut shaders, mut first) = (vec![], None);
    for text in tunings {
        let (name, tuning) = (format!("{name} with {text}"), text.parse::<Tuning>().unwrap());
        check_on(&name, kernel, operands, symbols, &Target::BASELINE, &tuning);
        let emitted = emit(kernel, &Target::BASELINE, &tuning).unwrap();
        if let Some(got) = device().and_then(|device| device.run(kernel, &emitted, operands, &known)) {
            let got = bits(&got);
            assert!(*first.get_or_insert_with(|| got.clone()) == got, "{name}: other bits");
        }
        shaders.push(emitted.wgsl);
    }
    shaders.sort_unstable();
    shaders.dedup();
    assert!(shaders.len() >= 2, "{name}: the tunings are the same");
}

#[test]
fn rows_of_ids() {
    const TUNINGS: [&str; 3] = [
        "default",
        "map:threads=64,groups_per_thread=2,rows_per_thread=2",
        "map:threads=256,groups_per_thread=4,rows_per_thread=4",
    ];
    for (width, dtype, result) in ROWS {
        for count in [0, 1, 83] {
            let data = [indices(DType::I32, &[count], HEIGHT as i64, 1), noise(dtype, &[HEIGHT, width], 2)];
            let name = format!("{count} rows of {width} {dtype} as {result}");
            hold(&name, &rows(width, dtype, result), &data, &[(0, count as i64)], &TUNINGS);
        }
    }
}

#[test]
fn rows_of_samples() {
    const TUNINGS: [&str; 3] = [
        "default",
        "fold:threads=256,groups_per_thread=2,rows_per_thread=2",
        "fold:threads=64,groups_per_thread=4,rows_per_thread=3",
    ];
    for (width, dtype, result) in ROWS {
        for lengths in [&[5, 0, 33, 1, 70, 0][..], &[0, 0], &[]] {
            let total: i64 = lengths.iter().sum();
            let ids = indices(DType::I32, &[total as usize], HEIGHT as i64, 1);
            let data = [ids, noise(dtype, &[HEIGHT, width], 2), offsets(lengths)];
            let symbols = [(0, lengths.len() as i64), (1, total)];
            let name = format!("{width} {dtype} of {lengths:?} as {result}");
            hold(&name, &bags(width, dtype, result), &data, &symbols, &TUNINGS);
        }
    }
}

/// The suited tuning for a run of `samples` samples.
fn suited(kernel: &Computation, target: &Target, samples: u64) -> Tuning {
    rewire_emit::suited(Tuning::default(), kernel, target, |dim| {
        Some(dim.as_const().map_or(samples, |width| width as u64))
    })
}

#[test]
fn many_rows_share_threads() {
    let software = Target { software: true, ..Target::BASELINE };
    for (kernel, many) in [
        (rows(128, DType::Rows8, DType::F32), "map:threads=256,groups_per_thread=2,rows_per_thread=2"),
        (bags(128, DType::Rows8, DType::F32), "fold:threads=256,groups_per_thread=2,rows_per_thread=2"),
    ] {
        assert_eq!(suited(&kernel, &Target::BASELINE, 200), Tuning::default());
        assert_eq!(suited(&kernel, &Target::BASELINE, 1 << 20).to_string(), many);
        assert_eq!(suited(&kernel, &software, 1 << 20), Tuning::default());
        assert!(candidates(&Tuning::default(), &kernel, &Target::BASELINE).len() > 20);
    }
}
