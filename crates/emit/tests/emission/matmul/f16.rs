//! Operands that are rounded to f16, and operands that are not.

use super::matrix;
use crate::build::{Build, combined, contracted, noise, output, own, sym};
use crate::{check_on, with_matrices};
use rewire_emit::emit;
use rewire_graph::pointwise::{BinaryOp, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, Number, Scalar};
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::{Accumulation, Axis, Computation, Extent, Nest, ReduceOp};

/// `[m, 48] x [48, 64]` of f16. Left elements are computed by `left` from f16 `[m, 48]`, a second such tensor, f16
/// `[48]` and integers `[m, 48]`.
fn prepared(left: impl Fn(&mut Build, [ExprId; 4]) -> (Vec<Accumulation>, ExprId)) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(48), Dim::from(64));
    let rows = vec![m.clone(), k.clone()];
    let [x, y] = [0, 1].map(|_| b.operand(DType::F16, rows.clone()));
    let (scale, ids) = (b.operand(DType::F16, vec![k.clone()]), b.operand(DType::I32, rows));
    let w = b.operand(DType::F16, vec![k.clone(), n.clone()]);
    let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
    let [x, y, ids] = [x, y, ids].map(|operand| b.load(operand, &[row, depth]));
    let (scale, right) = (b.load(scale, &[depth]), b.load(w, &[depth, column]));
    let (mut accumulations, a) = left(&mut b, [x, y, scale, ids]);
    let value = b.body.dag.value(accumulations.len() as u8, Scalar::F32);
    accumulations.push(contracted(2, a, right));
    let outputs = own(vec![output(DType::F32, vec![m.clone(), n.clone()], vec![row, column], value)]);
    matrix(b, [m, n, k], accumulations, outputs)
}

/// The reciprocal root mean square of a row, and its reduction.
fn inverse_length(b: &mut Build, x: ExprId) -> (Vec<Accumulation>, ExprId) {
    let square = b.bin(BinaryOp::Mul, x, x);
    let sum = b.body.dag.value(0, Scalar::F32);
    let part = b.float(1.0 / 48.0);
    let mean = b.bin(BinaryOp::Mul, sum, part);
    let eps = b.float(1e-5);
    let mean = b.bin(BinaryOp::Add, mean, eps);
    let scale = b.body.dag.unary(UnaryOp::Rsqrt, mean);
    (vec![combined(ReduceOp::Sum, 2, square)], scale)
}

type Prologue = fn(&mut Build, [ExprId; 4]) -> (Vec<Accumulation>, ExprId);

#[test]
fn only_what_f16_holds_is_rounded_to_f16() {
    let takes: [(&str, Prologue); 9] = [
        ("stored f16 values", |_, [x, ..]| (vec![], x)),
        ("a bounded function", |b, [x, ..]| (vec![], b.body.dag.unary(UnaryOp::Tanh, x))),
        ("a gate", |b, [x, y, ..]| {
            let gate = b.body.dag.unary(UnaryOp::Sigmoid, y);
            (vec![], b.bin(BinaryOp::Mul, x, gate))
        }),
        ("a scale that rows share", |b, [x, _, scale, _]| (vec![], b.bin(BinaryOp::Mul, x, scale))),
        ("a sum", |b, [x, y, ..]| (vec![], b.bin(BinaryOp::Add, x, y))),
        ("a normalised row by another", |b, [x, y, scale, _]| {
            let (stats, inverse) = inverse_length(b, x);
            let normal = b.bin(BinaryOp::Mul, x, inverse);
            let normal = b.bin(BinaryOp::Mul, normal, scale);
            (stats, b.bin(BinaryOp::Mul, normal, y))
        }),
        ("weights of a softmax", |b, [x, ..]| {
            let largest = b.body.dag.value(0, Scalar::F32);
            let below = b.bin(BinaryOp::Sub, x, largest);
            let stats = vec![combined(ReduceOp::Max, 2, x)];
            (stats, b.body.dag.unary(UnaryOp::Exp, below))
        }),
        ("small integers", |b, [.., ids]| {
            let limit = b.body.dag.int(2049);
            let small = b.bin(BinaryOp::Mod, ids, limit);
            (vec![], b.body.dag.cast(Scalar::F32, small))
        }),
        ("bools", |b, [.., ids]| {
            let zero = b.body.dag.int(0);
            let positive = b.bin(BinaryOp::Gt, ids, zero);
            (vec![], b.body.dag.cast(Scalar::F32, positive))
        }),
    ];
    let refuses: [(&str, Prologue); 6] = [
        ("integers", |b, [.., ids]| (vec![], b.body.dag.cast(Scalar::F32, ids))),
        ("integers above 2048", |b, [.., ids]| {
            let limit = b.body.dag.int(2050);
            let small = b.bin(BinaryOp::Mod, ids, limit);
            (vec![], b.body.dag.cast(Scalar::F32, small))
        }),
        ("an exponential", |b, [x, ..]| (vec![], b.body.dag.unary(UnaryOp::Exp, x))),
        ("a square", |b, [x, ..]| (vec![], b.bin(BinaryOp::Mul, x, x))),
        ("a large scale", |b, [x, ..]| {
            let large = b.float(1000.0);
            (vec![], b.bin(BinaryOp::Mul, x, large))
        }),
        ("a quotient", |b, [x, y, ..]| (vec![], b.bin(BinaryOp::Div, x, y))),
    ];
    let mut ids = noise(DType::I32, &[9, 48], 4);
    for (n, id) in ids.data.iter_mut().enumerate() {
        *id = Number::Integer([2049, -70_000, 0, 3, -1][n % 5]);
    }
    let large = |seed| {
        let mut x = noise(DType::F16, &[9, 48], seed);
        x.data.iter_mut().for_each(|x| *x = Number::Float(half::f16::from_f64(x.float() * 8.0).to_f64()));
        x
    };
    let data = [large(1), large(2), noise(DType::F16, &[48], 3), ids, noise(DType::F16, &[48, 64], 5)];
    for (prologues, expected) in [(&takes[..], true), (&refuses[..], false)] {
        for (name, left) in prologues {
            for (matrix, subgroup) in [(8, 8), (16, 32)] {
                let target = with_matrices(matrix, subgroup);
                let kernel = prepared(left);
                let wgsl = match *name {
                    // Not compared: f16 rounding exceeds the f32 tolerance of the plain loops.
                    "weights of a softmax"
                    | "a gate"
                    | "a bounded function"
                    | "a normalised row by another"
                    | "a scale that rows share"
                    | "a sum" => emit(&kernel, &target, &Tuning::default()).unwrap().wgsl,
                    _ => check_on(name, &kernel, &data, &[(0, 9)], &target, &Tuning::default()),
                };
                assert_eq!(wgsl.contains("coopMultiplyAdd"), expected, "{name}");
            }
        }
    }
}

/// `[m, k] x [k, n]` with a function applied to the elements of both operands.
fn made(dtype: DType, function: fn(&mut Build, ExprId) -> ExprId) -> Computation {
    let mut b = Build::default();
    let (m, k, n) = (sym(0), Dim::from(48), Dim::from(64));
    let x = b.operand(dtype, vec![m.clone(), k.clone()]);
    let w = b.operand(dtype, vec![k.clone(), n.clone()]);
    let (row, column, depth) = (b.coord(0, &m), b.coord(1, &n), b.coord(2, &k));
    let [left, right] = [b.load(x, &[row, depth]), b.load(w, &[depth, column])].map(|x| function(&mut b, x));
    let value = b.body.dag.value(0, Scalar::F32);
    let outputs = own(vec![output(DType::F32, vec![m.clone(), n.clone()], vec![row, column], value)]);
    let mut axes = Axis::points([m, n]);
    axes.push(Axis::sum(Extent::Dense(k)));
    Computation::of(Nest { body: b.body, axes, accumulations: vec![contracted(2, left, right)], outputs }).unwrap()
}

#[test]
fn bools_are_f16_and_bounded_functions_of_f32_are_not() {
    let positive = made(DType::I32, |b, x| {
        let zero = b.body.dag.int(0);
        let positive = b.bin(BinaryOp::Gt, x, zero);
        b.body.dag.cast(Scalar::F32, positive)
    });
    let bounded = made(DType::F32, |b, x| b.body.dag.unary(UnaryOp::Tanh, x));
    for (name, dtype, kernel, expected) in
        [("bools", DType::I32, positive, true), ("a bounded function", DType::F32, bounded, false)]
    {
        let data = [noise(dtype, &[9, 48], 1), noise(dtype, &[48, 64], 2)];
        for (matrix, subgroup) in [(8, 8), (16, 32)] {
            let target = with_matrices(matrix, subgroup);
            let wgsl = check_on(name, &kernel, &data, &[(0, 9)], &target, &Tuning::default());
            assert_eq!(wgsl.contains("coopMultiplyAdd"), expected, "{name}");
        }
    }
}
