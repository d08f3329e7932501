use crate::build::{Build, combined, contracted, indices, noise, output, own, sym};
use crate::check;
use crate::tensor::Tensor;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Dim, Number, Scalar};
use rewire_graph_rewrite::plan::{Axis, Computation, Extent, Nest, Output, ReduceOp};

const WIDTHS: [usize; 8] = [1, 3, 4, 25, 50, 64, 130, 1000];

/// The sum and the maximum, at least 0, over the rows `[2, w]` of each sample, and some columns of the sum in f16.
pub fn by_sample(samples: Dim, w: Dim, dtype: DType) -> Computation {
    let mut b = Build::default();
    let parts = Dim::from(2);
    let x = b.operand(dtype, vec![sym(1), parts.clone(), w.clone()]);
    let offsets = b.host(vec![samples.clone() + 1.into()]);
    let (sample, part, j) = (b.coord(0, &samples), b.coord(1, &parts), b.coord(2, &w));
    let n = b.body.dag.coord(3, None);
    let start = b.load(offsets, &[sample]);
    let row = b.bin(BinaryOp::Add, start, n);
    let x = b.load(x, &[row, part, j]);
    let [sum, largest] = [0, 1].map(|n| b.body.dag.value(n, Scalar::F32));
    let zero = b.float(0.0);
    let positive = b.bin(BinaryOp::Max, largest, zero);
    let shape = vec![samples.clone(), parts.clone(), w.clone()];
    let mut outputs = own(vec![
        output(DType::F32, shape.clone(), vec![sample, part, j], sum),
        output(DType::F32, shape, vec![sample, part, j], positive),
    ]);
    if let Some(width) = w.as_const().filter(|width| *width > 3) {
        let one = b.body.dag.int(1);
        let shifted = b.bin(BinaryOp::Sub, j, one);
        let shape = vec![samples.clone(), parts.clone(), (width - 3).into()];
        let some = output(DType::F16, shape, vec![sample, part, shifted], sum);
        outputs.push(Output { target: 2, columns: Some((1, width - 2)), ..some });
    }
    let accumulations = [ReduceOp::Sum, ReduceOp::Max].map(|op| combined(op, 3, x)).to_vec();
    let mut axes = Axis::points([samples, parts, w]);
    axes.push(Axis::sum(Extent::Ragged { offsets }));
    Computation::of(Nest { body: b.body, axes, accumulations, outputs }).unwrap()
}

pub fn offsets(lengths: &[i64]) -> Tensor {
    let ends = lengths.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    let data: Vec<Number> = std::iter::once(0).chain(ends).map(Number::Integer).collect();
    Tensor { dtype: DType::I32, shape: vec![data.len()], data }
}

#[test]
fn the_rows_of_samples() {
    for width in WIDTHS {
        for (lengths, symbolic) in [(&[5, 0, 17, 1][..], false), (&[40], true), (&[0, 0], false), (&[], true)] {
            let (w, dtype) = if symbolic { (sym(2), DType::F16) } else { (width.into(), DType::F32) };
            let total: i64 = lengths.iter().sum();
            let data = [noise(dtype, &[total as usize, 2, width], 1), offsets(lengths)];
            let symbols = [(0, lengths.len() as i64), (1, total), (2, width as i64)];
            // Many threads share a result where all results are known to be few.
            for samples in [sym(0), lengths.len().into()] {
                let kernel = by_sample(samples.clone(), w.clone(), dtype);
                check(&format!("{width} of {samples}, {lengths:?}"), &kernel, &data, &symbols);
            }
        }
    }
}

/// Rows summed by index, doubled.
pub fn by_index(results: Dim, w: Dim, dtype: DType) -> Computation {
    let mut b = Build::default();
    let rows = sym(0);
    let x = b.operand(dtype, vec![rows.clone(), w.clone()]);
    let index = b.operand(DType::I32, vec![rows.clone()]);
    let (i, j, n) = (b.coord(0, &results), b.coord(1, &w), b.coord(2, &rows));
    let (x, index) = (b.load(x, &[n, j]), b.load(index, &[n]));
    let hit = b.bin(BinaryOp::Eq, index, i);
    let zero = b.float(0.0);
    let value = b.body.dag.select(hit, x, zero);
    let sum = b.body.dag.value(0, Scalar::F32);
    let two = b.float(2.0);
    let outputs =
        vec![output(DType::F32, vec![results.clone(), w.clone()], vec![i, j], b.bin(BinaryOp::Mul, sum, two))];
    let mut axes = Axis::points([results, w]);
    axes.push(Axis::sum(Extent::Dense(rows)));
    Computation::of(Nest { body: b.body, axes, accumulations: vec![combined(ReduceOp::Sum, 2, value)], outputs })
        .unwrap()
}

#[test]
fn rows_by_index() {
    for &width in WIDTHS.iter().filter(|width| **width < 1000) {
        for (rows, results, symbolic) in
            [(0usize, 3usize, false), (1, 1, true), (300, 70, true), (2100, 5, true), (40, 9, false)]
        {
            let (w, dtype) = if symbolic { (width.into(), DType::F16) } else { (sym(2), DType::F32) };
            let kernel = by_index(if symbolic { sym(1) } else { results.into() }, w, dtype);
            // Some rows have an index beyond the results.
            let data = [noise(dtype, &[rows, width], 1), indices(DType::I32, &[rows], results as i64 + 2, 2)];
            let symbols = [(0, rows as i64), (1, results as i64), (2, width as i64)];
            check(&format!("{rows} of {width} to {results}"), &kernel, &data, &symbols);
        }
    }
}

/// Outer products of the rows of two tensors, summed by sample.
pub fn products(k: usize, w: usize, dtype: DType) -> Computation {
    let mut b = Build::default();
    let (samples, k, w) = (sym(0), Dim::from(k), Dim::from(w));
    let [x, y] = [&k, &w].map(|width| b.operand(dtype, vec![sym(1), width.clone()]));
    let offsets = b.host(vec![samples.clone() + 1.into()]);
    let (sample, i, j) = (b.coord(0, &samples), b.coord(1, &k), b.coord(2, &w));
    let n = b.body.dag.coord(3, None);
    let start = b.load(offsets, &[sample]);
    let row = b.bin(BinaryOp::Add, start, n);
    let [x, y] = [(x, i), (y, j)].map(|(operand, column)| b.load(operand, &[row, column]));
    let sum = b.body.dag.value(0, Scalar::F32);
    let outputs = vec![output(DType::F32, vec![samples.clone(), k.clone(), w.clone()], vec![sample, i, j], sum)];
    let mut axes = Axis::points([samples, k, w]);
    axes.push(Axis::sum(Extent::Ragged { offsets }));
    Computation::of(Nest { body: b.body, axes, accumulations: vec![contracted(3, x, y)], outputs }).unwrap()
}

#[test]
fn products_of_the_rows_of_samples() {
    for (k, w) in [(1, 1), (5, 3), (25, 50), (64, 130), (130, 64)] {
        for lengths in [&[5, 0, 67, 1][..], &[0, 0], &[]] {
            for dtype in [DType::F32, DType::F16] {
                let total: i64 = lengths.iter().sum();
                let [x, y] = [(k, 1), (w, 2)].map(|(width, seed)| noise(dtype, &[total as usize, width], seed));
                let symbols = [(0, lengths.len() as i64), (1, total)];
                check(
                    &format!("{k} by {w} of {lengths:?}"),
                    &products(k, w, dtype),
                    &[x, y, offsets(lengths)],
                    &symbols,
                );
            }
        }
    }
}
