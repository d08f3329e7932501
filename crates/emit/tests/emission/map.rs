use crate::build::{Build, indices, noise, output, own, sym};
use crate::check;
use crate::tensor::Tensor;
use rewire_emit::emit;
use rewire_graph::pointwise::{BinaryOp, ExprId, UnaryOp};
use rewire_graph::{DType, Dim, Scalar};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::{Computation, Nest};

fn shapes() -> Vec<(Dim, Dim, usize, usize)> {
    let mut all = vec![];
    for width in [1, 2, 3, 4, 5, 8, 25, 50, 64, 130] {
        for rows in [0, 1, 7, 300] {
            all.push((sym(0), width.into(), rows, width));
            all.push((rows.into(), sym(1), rows, width));
        }
    }
    all
}

/// SiLU of a matrix plus a row, stored as `dtype`, and the transposed sum.
pub fn biased(rows: &Dim, width: &Dim, dtype: DType) -> Computation {
    let mut b = Build::default();
    let x = b.operand(dtype, vec![rows.clone(), width.clone()]);
    let bias = b.operand(DType::F32, vec![width.clone()]);
    let (i, j) = (b.coord(0, rows), b.coord(1, width));
    let (x, bias) = (b.load(x, &[i, j]), b.load(bias, &[j]));
    let sum = b.bin(BinaryOp::Add, x, bias);
    let silu = b.body.dag.unary(UnaryOp::Silu, sum);
    let outputs = vec![
        output(dtype, vec![rows.clone(), width.clone()], vec![i, j], silu),
        output(DType::F32, vec![width.clone(), rows.clone()], vec![j, i], sum),
    ];
    Computation::of(Nest::map(b.body, vec![rows.clone(), width.clone()], own(outputs))).unwrap()
}

#[test]
fn a_sum_with_a_broadcast_row() {
    for (rows, width, n, w) in shapes() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let data = [noise(dtype, &[n, w], 1), noise(DType::F32, &[w], 2)];
            let symbols = [(0, n as i64), (1, w as i64)];
            check(&format!("{n}x{w} {dtype}"), &biased(&rows, &width, dtype), &data, &symbols);
        }
    }
}

#[test]
fn an_embedding_whose_ids_are_padded_with_junk() {
    for (rows, width, n, w) in shapes() {
        for dtype in [DType::I64, DType::I32] {
            let mut b = Build::default();
            let ids = b.operand(dtype, vec![rows.clone(), width.clone()]);
            let table = b.operand(DType::Rows8, vec![37usize.into(), sym(2)]);
            let (i, j) = (b.coord(0, &rows), b.coord(1, &width));
            let id = b.load(ids, &[i, j]);
            let id = b.body.dag.cast(Scalar::I32, id);
            let three = b.body.dag.int(3);
            let entry = b.load(table, &[id, three]);
            let outputs = vec![output(DType::F32, vec![rows.clone(), width.clone()], vec![i, j], entry)];
            let kernel = Computation::of(Nest::map(b.body, vec![rows.clone(), width.clone()], own(outputs))).unwrap();
            let data = [indices(dtype, &[n, w], 37, 1), noise(DType::Rows8, &[37, 6], 2)];
            check(&format!("{n}x{w} {dtype}"), &kernel, &data, &[(0, n as i64), (1, w as i64), (2, 6)]);
        }
    }
}

/// Bucketizes a value, and looks up the entry of its bucket in a table.
fn bucketed(bounds: usize, width: usize) -> Computation {
    let mut b = Build::default();
    let n = sym(0);
    let x = b.operand(DType::I32, vec![n.clone()]);
    let table = b.operand(DType::F32, vec![(bounds + 1).into(), width.into()]);
    let (i, j) = (b.coord(0, &n), b.coord(1, &width.into()));
    let value = b.load(x, &[i]);
    let mut chosen = None;
    for bound in 0..=bounds {
        let row = b.body.dag.int(bound as i64);
        let entry = b.load(table, &[row, j]);
        let limit = b.body.dag.int(3 * bound as i64);
        let reached = b.bin(BinaryOp::Ge, value, limit);
        chosen = Some(chosen.map_or(entry, |below| b.body.dag.select(reached, entry, below)));
    }
    let outputs = vec![output(DType::F32, vec![n.clone(), width.into()], vec![i, j], chosen.unwrap())];
    Computation::of(Nest::map(b.body, vec![n, width.into()], own(outputs))).unwrap()
}

#[test]
fn long_chains_of_choices_nest_few_branches() {
    for (bounds, width, most) in [(5, 4, 6), (8, 3, 9), (9, 4, 6), (31, 5, 8), (100, 4, 10)] {
        let kernel = bucketed(bounds, width);
        let data = [indices(DType::I32, &[77], 3 * bounds as i64 + 5, 1), noise(DType::F32, &[bounds + 1, width], 2)];
        check(&format!("{bounds} bounds, width {width}"), &kernel, &data, &[(0, 77)]);
        let wgsl = emit(&kernel, &Target::BASELINE, &Tuning::default()).unwrap().wgsl;
        let deepest = wgsl.lines().map(|line| (line.len() - line.trim_start().len()) / 4).max();
        assert!(deepest.is_some_and(|deepest| deepest <= most + 2), "{bounds} bounds: {deepest:?}\n{wgsl}");
    }
}

/// A concatenation of two tensors along columns, as one output and as one output per tensor.
pub fn concatenation(left: usize, right: usize) -> Computation {
    let mut b = Build::default();
    let n = sym(0);
    let width = Dim::from(left + right);
    let x = b.operand(DType::F32, vec![n.clone(), left.into()]);
    let y = b.operand(DType::F16, vec![n.clone(), right.into()]);
    let (i, j) = (b.coord(0, &n), b.coord(1, &width));
    let split = b.body.dag.int(left as i64);
    let first = b.bin(BinaryOp::Lt, j, split);
    let rest = b.bin(BinaryOp::Sub, j, split);
    let (x, y) = (b.load(x, &[i, j]), b.load(y, &[i, rest]));
    let value = b.body.dag.select(first, x, y);
    let mut part = output(DType::F32, vec![n.clone(), right.into()], vec![i, rest], value);
    part.columns = Some((left, left + right));
    let mut head = output(DType::F16, vec![n.clone(), (left + 2).into()], vec![i, j], value);
    head.columns = Some((0, left));
    let outputs = vec![output(DType::F16, vec![n.clone(), width.clone()], vec![i, j], value), part, head];
    Computation::of(Nest::map(b.body, vec![n, width], own(outputs))).unwrap()
}

#[test]
fn a_concatenation_reads_only_the_side_it_takes() {
    for (left, right) in [(4, 4), (8, 3), (5, 6), (1, 1), (25, 25), (64, 1)] {
        for rows in [1, 9, 200] {
            let kernel = concatenation(left, right);
            let data = [noise(DType::F32, &[rows, left], 1), noise(DType::F16, &[rows, right], 2)];
            check(&format!("{rows}x({left}+{right})"), &kernel, &data, &[(0, rows as i64)]);
        }
    }
}

#[test]
fn samples_of_rows_and_host_vectors() {
    for offsets in [vec![0, 3, 3, 10], vec![0, 0, 5], vec![0, 1]] {
        let total = *offsets.last().unwrap() as usize;
        let mut b = Build::default();
        let n = sym(0);
        let offs = b.host(vec![sym(1) + 1usize.into()]);
        let scale = b.operand(DType::F32, vec![sym(1)]);
        let (i, j) = (b.coord(0, &n), b.coord(1, &8usize.into()));
        let sample = b.body.dag.sample(offs, i);
        let start = b.load(offs, &[sample]);
        let position = b.bin(BinaryOp::Sub, i, start);
        let position = b.bin(BinaryOp::Add, position, j);
        let position = b.body.dag.cast(Scalar::F32, position);
        let scale = b.load(scale, &[sample]);
        let value = b.bin(BinaryOp::Mul, position, scale);
        let outputs = vec![output(DType::F32, vec![n.clone(), 8usize.into()], vec![i, j], value)];
        let kernel = Computation::of(Nest::map(b.body, vec![n, 8usize.into()], own(outputs))).unwrap();
        let data = [Tensor::ints(DType::I32, &offsets), noise(DType::F32, &[offsets.len() - 1], 2)];
        check("samples", &kernel, &data, &[(0, total as i64), (1, offsets.len() as i64 - 1)]);
    }
}

#[test]
fn arithmetic_of_long_integers() {
    use BinaryOp::*;
    for width in [1usize, 64] {
        for op in [Add, Sub, Mul, Div, Mod, Min, Max, And, Or, Eq, Ne, Lt, Le, Gt, Ge] {
            let mut b = Build::default();
            let shape: Vec<Dim> = vec![70usize.into(), width.into()];
            let x = b.operand(DType::I64, shape.clone());
            let y = b.operand(DType::I64, shape.clone());
            let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
            let (x, y) = (b.load(x, &[i, j]), b.load(y, &[i, j]));
            let value = b.bin(op, x, y);
            let dtype = if op.is_comparison() { DType::Bool } else { DType::I64 };
            let day = b.body.dag.constant(Scalar::I64, 86400);
            let days = b.bin(Div, x, day);
            let near = b.body.dag.cast(Scalar::F32, x);
            let back = b.body.dag.cast(Scalar::I64, near);
            let hour = b.body.dag.constant(Scalar::I64, 3600);
            let hours = b.bin(Mod, x, hour);
            let hours = b.body.dag.cast(Scalar::I32, hours);
            let outputs = vec![
                output(dtype, shape.clone(), vec![i, j], value),
                output(DType::I64, shape.clone(), vec![i, j], days),
                output(DType::F32, shape.clone(), vec![i, j], near),
                output(DType::I64, shape.clone(), vec![i, j], back),
                output(DType::I32, shape.clone(), vec![i, j], hours),
            ];
            let kernel = Computation::of(Nest::map(b.body, shape, own(outputs))).unwrap();
            let mut data = [noise(DType::I64, &[70, width], 3), noise(DType::I64, &[70, width], 4)];
            data[1].data[5] = rewire_graph::Number::Integer(0);
            check(&format!("{op:?} {width}"), &kernel, &data, &[]);
        }
    }
}

/// The sum of all functions and conversions of floats, with NaN and infinite literals.
pub fn functions_of_floats(width: usize) -> Computation {
    use BinaryOp::{Add, Div, Eq, Max, Min, Mod, Mul, Ne, Pow, Sub};
    use UnaryOp::*;
    let mut b = Build::default();
    let shape: Vec<Dim> = vec![50usize.into(), width.into()];
    let x = b.operand(DType::F16, shape.clone());
    let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
    let x = b.load(x, &[i, j]);
    let unary = [Neg, Abs, Exp, Log, Sqrt, Rsqrt, Sigmoid, Silu, Relu, Tanh, Erf, Sin, Cos, Floor, Ceil, Trunc, Round];
    let mut values: Vec<ExprId> = unary.iter().map(|&op| b.body.dag.unary(op, x)).collect();
    for literal in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0] {
        let literal = b.float(literal);
        values.extend([Sub, Mul, Div, Mod, Pow, Min, Max].map(|op| b.bin(op, literal, x)));
    }
    values.push(b.bin(Sub, x, x));
    let integers = [Scalar::I32, Scalar::I64, Scalar::Bool].map(|scalar| b.body.dag.cast(scalar, x));
    values.extend(integers.map(|integer| b.body.dag.cast(Scalar::F32, integer)));
    let truths = [Eq, Ne].map(|op| b.bin(op, x, values[3]));
    values.extend(truths.map(|truth| b.body.dag.cast(Scalar::F32, truth)));
    let sum = values.into_iter().reduce(|sum, value| b.bin(Add, sum, value)).unwrap();
    let outputs = vec![output(DType::F16, shape.clone(), vec![i, j], sum)];
    Computation::of(Nest::map(b.body, shape, own(outputs))).unwrap()
}

#[test]
fn functions_of_floats_and_integers() {
    use UnaryOp::*;
    for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(Scalar::F32)) {
        let mut b = Build::default();
        let shape: Vec<Dim> = vec![50usize.into(), 6usize.into()];
        let x = b.operand(DType::F32, shape.clone());
        let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
        let mut x = b.load(x, &[i, j]);
        if matches!(op, Log | Sqrt | Rsqrt) {
            x = b.body.dag.unary(Abs, x);
        }
        let value = b.body.dag.unary(op, x);
        let ten = b.float(1000.0);
        let large = b.bin(BinaryOp::Mul, x, ten);
        let large = if matches!(op, Sigmoid | Silu | Softplus | Tanh | Erf) { b.body.dag.unary(op, large) } else { x };
        let two = b.float(0.7);
        let modulo = b.bin(BinaryOp::Mod, x, two);
        let outputs = vec![
            output(DType::F32, shape.clone(), vec![i, j], value),
            output(DType::F32, shape.clone(), vec![i, j], large),
            output(DType::F32, shape.clone(), vec![i, j], modulo),
        ];
        let kernel = Computation::of(Nest::map(b.body, shape, own(outputs))).unwrap();
        check(&format!("{op:?}"), &kernel, &[noise(DType::F32, &[50, 6], 3)], &[]);
    }
    for op in [BinaryOp::Div, BinaryOp::Mod, BinaryOp::Min, BinaryOp::Mul] {
        for divisor in [-3, 0, 1, 5, 8] {
            let mut b = Build::default();
            let shape: Vec<Dim> = vec![50usize.into(), 6usize.into()];
            let x = b.operand(DType::I32, shape.clone());
            let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
            let x = b.load(x, &[i, j]);
            let divisor = b.body.dag.int(divisor);
            let value = b.bin(op, x, divisor);
            let natural = b.bin(op, j, divisor);
            let runtime = b.bin(op, divisor, x);
            let outputs = [value, natural, runtime].map(|v| output(DType::I32, shape.clone(), vec![i, j], v)).to_vec();
            let kernel = Computation::of(Nest::map(b.body, shape, own(outputs))).unwrap();
            check(&format!("{op:?}"), &kernel, &[noise(DType::I32, &[50, 6], 3)], &[]);
        }
    }
}

#[test]
fn random_numbers_by_element() {
    for width in [5usize, 8] {
        let mut b = Build::default();
        let shape: Vec<Dim> = vec![9usize.into(), width.into()];
        let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
        let seed = b.operand(DType::I64, vec![]);
        let seed = b.load(seed, &[]);
        let pitch = b.body.dag.int(width as i64);
        let row = b.bin(BinaryOp::Mul, i, pitch);
        let element = b.bin(BinaryOp::Add, row, j);
        let value = b.body.dag.uniform(seed, element);
        let outputs = vec![output(DType::F32, shape.clone(), vec![i, j], value)];
        let kernel = Computation::of(Nest::map(b.body, shape, own(outputs))).unwrap();
        let seed = Tensor {
            dtype: DType::I64,
            shape: vec![],
            data: vec![rewire_graph::Number::Integer(0x1234_5678_9abc_def0)],
        };
        check(&format!("{width}"), &kernel, &[seed], &[]);
    }
}
