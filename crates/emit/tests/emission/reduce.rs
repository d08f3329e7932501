use crate::build::{Build, combined, noise, output, own, sym};
use crate::check;
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, Dim, Scalar};
use rewire_graph_rewrite::plan::{Axis, Computation, Nest, ReduceOp};

const WIDTHS: [usize; 14] = [1, 2, 3, 4, 5, 8, 25, 50, 64, 100, 130, 512, 1000, 5000];

/// Normalised and scaled rows, their means in f16, and their scales.
pub fn layer_norm(w: Dim, dtype: DType) -> Computation {
    let mut b = Build::default();
    let n = sym(0);
    let x = b.operand(dtype, vec![n.clone(), w.clone()]);
    let gain = b.operand(DType::F32, vec![w.clone()]);
    let (i, j) = (b.coord(0, &n), b.coord(1, &w));
    let x = b.load(x, &[i, j]);
    b.body.sizes.push(w.clone());
    let count = b.body.dag.size(0);
    let count = b.body.dag.cast(Scalar::F32, count);
    let total = b.body.dag.value(0, Scalar::F32);
    let mean = b.bin(BinaryOp::Div, total, count);
    let centred = b.bin(BinaryOp::Sub, x, mean);
    let square = b.bin(BinaryOp::Mul, centred, centred);
    let squares = b.body.dag.value(1, Scalar::F32);
    let variance = b.bin(BinaryOp::Div, squares, count);
    let eps = b.float(1e-5);
    let variance = b.bin(BinaryOp::Add, variance, eps);
    let scale = b.body.dag.unary(UnaryOp::Rsqrt, variance);
    let normal = b.bin(BinaryOp::Mul, centred, scale);
    let gain = b.load(gain, &[j]);
    let y = b.bin(BinaryOp::Mul, normal, gain);
    let outputs = own(vec![
        output(dtype, vec![n.clone(), w.clone()], vec![i, j], y),
        output(DType::F16, vec![n.clone()], vec![i], mean),
        output(DType::F32, vec![n.clone()], vec![i], scale),
    ]);
    let accumulations = [x, square].map(|value| combined(ReduceOp::Sum, 1, value)).to_vec();
    Computation::of(Nest { body: b.body, axes: Axis::points([n, w]), accumulations, outputs }).unwrap()
}

#[test]
fn a_layer_norm_with_its_statistics() {
    for width in WIDTHS {
        for (rows, symbolic) in [(0usize, false), (1, false), (7, true), (70, false)] {
            let w = if symbolic { sym(1) } else { Dim::from(width) };
            let dtype = if symbolic { DType::F16 } else { DType::F32 };
            let kernel = layer_norm(w, dtype);
            let data = [noise(dtype, &[rows, width], 1), noise(DType::F32, &[width], 2)];
            check(&format!("{rows}x{width}"), &kernel, &data, &[(0, rows as i64), (1, width as i64)]);
        }
    }
}

#[test]
fn softmax_and_extrema_over_two_outer_dimensions() {
    for width in WIDTHS {
        let mut b = Build::default();
        let (h, n, w) = (Dim::from(3), sym(0), Dim::from(width));
        let x = b.operand(DType::F32, vec![h.clone(), n.clone(), w.clone()]);
        let (c, i, j) = (b.coord(0, &h), b.coord(1, &n), b.coord(2, &w));
        let x = b.load(x, &[c, i, j]);
        let (high, low) = (b.body.dag.value(0, Scalar::F32), b.body.dag.value(1, Scalar::F32));
        let below = b.bin(BinaryOp::Sub, x, high);
        let weight = b.body.dag.unary(UnaryOp::Exp, below);
        let total = b.body.dag.value(2, Scalar::F32);
        let y = b.bin(BinaryOp::Div, weight, total);
        let span = b.bin(BinaryOp::Sub, high, low);
        let outputs = own(vec![
            output(DType::F32, vec![n.clone(), h.clone(), w.clone()], vec![i, c, j], y),
            output(DType::F32, vec![h.clone(), n.clone(), 1usize.into()], vec![c, i, b.body.dag.int(0)], span),
        ]);
        let accumulations = [(ReduceOp::Max, x), (ReduceOp::Min, x), (ReduceOp::Sum, weight)]
            .map(|(op, value)| combined(op, 2, value))
            .to_vec();
        let kernel =
            Computation::of(Nest { body: b.body, axes: Axis::points([h, n, w]), accumulations, outputs }).unwrap();
        check(&format!("{width}"), &kernel, &[noise(DType::F32, &[3, 11, width], 1)], &[(0, 11)]);
    }
}
