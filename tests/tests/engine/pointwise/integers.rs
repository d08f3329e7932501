//! Integers at the ends of their range: the interpreter, folded constants, the CPU and the adapter compute the same bits
//! as plain integers of this language.

use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, HostTensor, Ragged, Scope, Tensor};
use rewire_runtime::{Gpu, Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, gpu, load, on, oracle, run, session};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::{Results, Tolerance, differences};
use rewire_tests::noise::Noise;
use std::collections::BTreeMap;

const COUNT: usize = 40;
const I32S: [i32; 14] =
    [i32::MIN, i32::MIN + 1, i32::MAX, i32::MAX - 1, -1, 0, 1, 2, -7, 46_341, -65_536, 1 << 30, 25, -2_147_483_520];
const I64S: [i64; 19] = [
    i64::MIN,
    i64::MIN + 1,
    i64::MAX,
    (1 << 53) + 1,
    -(1 << 53) - 1,
    1 << 31,
    -1,
    0,
    1,
    -7,
    3_037_000_500,
    i32::MIN as i64,
    0x1234_5678_9abc_def1,
    1 << 62,
    3600,
    -86_400,
    (1 << 24) - 1,
    1 << 24,
    0xffff,
];
const F32S: [f32; 14] = [
    3e9,
    -3e9,
    2_147_483_648.0,
    2_147_483_520.0,
    -2_147_483_648.0,
    9.3e18,
    -9.3e18,
    9_223_371_500_000_000_000.0,
    -0.7,
    1.9,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    16_777_217.0,
];

/// Values of a step, in the types of this language.
#[derive(Clone, Debug)]
enum Values {
    I32(Vec<i32>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
    F32(Vec<f32>),
}

impl Values {
    fn tensor(&self) -> HostTensor {
        let of = |dtype, bytes| HostTensor::from_bytes(dtype, vec![COUNT], bytes).unwrap();
        match self {
            Self::I32(values) => of(DType::I32, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Self::I64(values) => of(DType::I64, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            Self::Bool(values) => of(DType::Bool, values.iter().flat_map(|&v| u32::from(v).to_le_bytes()).collect()),
            Self::F32(values) => of(DType::F32, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        }
    }
}

/// Rounded down; 0 for a divisor of 0.
fn quotient(a: i128, b: i128) -> i128 {
    match b {
        0 => 0,
        _ => (a - (a % b + b) % b) / b,
    }
}

fn remainder(a: i128, b: i128) -> i128 {
    if b == 0 { 0 } else { (a % b + b) % b }
}

macro_rules! integers {
    ($name:ident, $int:ty) => {
        fn $name(op: BinaryOp, a: $int, b: $int) -> Option<$int> {
            let (x, y) = (i128::from(a), i128::from(b));
            Some(match op {
                BinaryOp::Add => (x + y) as $int,
                BinaryOp::Sub => (x - y) as $int,
                BinaryOp::Mul => (x * y) as $int,
                BinaryOp::Div => quotient(x, y) as $int,
                BinaryOp::Mod => remainder(x, y) as $int,
                BinaryOp::Min => a.min(b),
                BinaryOp::Max => a.max(b),
                BinaryOp::And => a & b,
                BinaryOp::Or => a | b,
                _ => return None,
            })
        }
    };
}

integers!(of_i32, i32);
integers!(of_i64, i64);

fn compare(op: BinaryOp, order: std::cmp::Ordering) -> Option<bool> {
    Some(match op {
        BinaryOp::Eq => order.is_eq(),
        BinaryOp::Ne => order.is_ne(),
        BinaryOp::Lt => order.is_lt(),
        BinaryOp::Le => order.is_le(),
        BinaryOp::Gt => order.is_gt(),
        BinaryOp::Ge => order.is_ge(),
        _ => return None,
    })
}

fn zip<T: Copy, R>(a: &[T], b: &[T], f: impl Fn(T, T) -> Option<R>) -> Option<Vec<R>> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

fn binary(op: BinaryOp, a: &Values, b: &Values) -> Option<Values> {
    match (a, b) {
        (Values::I32(a), Values::I32(b)) => {
            let truth = zip(a, b, |a, b| compare(op, a.cmp(&b))).map(Values::Bool);
            truth.or_else(|| zip(a, b, |a, b| of_i32(op, a, b)).map(Values::I32))
        }
        (Values::I64(a), Values::I64(b)) => {
            let truth = zip(a, b, |a, b| compare(op, a.cmp(&b))).map(Values::Bool);
            truth.or_else(|| zip(a, b, |a, b| of_i64(op, a, b)).map(Values::I64))
        }
        (Values::Bool(a), Values::Bool(b)) => match op {
            BinaryOp::And => zip(a, b, |a, b| Some(a && b)).map(Values::Bool),
            BinaryOp::Or => zip(a, b, |a, b| Some(a || b)).map(Values::Bool),
            BinaryOp::Ne => zip(a, b, |a, b| Some(a != b)).map(Values::Bool),
            _ => None,
        },
        _ => None,
    }
}

fn unary(op: UnaryOp, a: &Values) -> Option<Values> {
    Some(match (op, a) {
        (UnaryOp::Neg, Values::I32(a)) => Values::I32(a.iter().map(|a| a.wrapping_neg()).collect()),
        (UnaryOp::Neg, Values::I64(a)) => Values::I64(a.iter().map(|a| a.wrapping_neg()).collect()),
        (UnaryOp::Abs, Values::I32(a)) => Values::I32(a.iter().map(|a| a.wrapping_abs()).collect()),
        (UnaryOp::Abs, Values::I64(a)) => Values::I64(a.iter().map(|a| a.wrapping_abs()).collect()),
        (UnaryOp::Not, Values::Bool(a)) => Values::Bool(a.iter().map(|a| !a).collect()),
        _ => return None,
    })
}

fn cast(to: DType, a: &Values) -> Option<Values> {
    Some(match (to, a) {
        (DType::I32, Values::I64(a)) => Values::I32(a.iter().map(|&a| a as i32).collect()),
        (DType::I32, Values::F32(a)) => Values::I32(a.iter().map(|&a| a as i32).collect()),
        (DType::I32, Values::Bool(a)) => Values::I32(a.iter().map(|&a| a.into()).collect()),
        (DType::I64, Values::I32(a)) => Values::I64(a.iter().map(|&a| a.into()).collect()),
        (DType::I64, Values::F32(a)) => Values::I64(a.iter().map(|&a| a as i64).collect()),
        (DType::I64, Values::Bool(a)) => Values::I64(a.iter().map(|&a| a.into()).collect()),
        (DType::Bool, Values::I32(a)) => Values::Bool(a.iter().map(|&a| a != 0).collect()),
        (DType::Bool, Values::I64(a)) => Values::Bool(a.iter().map(|&a| a != 0).collect()),
        _ => return None,
    })
}

fn choose(c: &[bool], a: &Values, b: &Values) -> Option<Values> {
    fn each<T: Copy>(c: &[bool], a: &[T], b: &[T]) -> Vec<T> {
        c.iter().zip(a.iter().zip(b)).map(|(&c, (&a, &b))| if c { a } else { b }).collect()
    }
    Some(match (a, b) {
        (Values::I32(a), Values::I32(b)) => Values::I32(each(c, a, b)),
        (Values::I64(a), Values::I64(b)) => Values::I64(each(c, a, b)),
        (Values::Bool(a), Values::Bool(b)) => Values::Bool(each(c, a, b)),
        _ => return None,
    })
}

/// A value in model code and its expected value.
type Known = (Tensor, Values);

/// A random function of earlier values; `None` of values that it is not defined for.
fn step(noise: &mut Noise, known: &[Known]) -> Option<Known> {
    use BinaryOp::*;
    const BINARY: [BinaryOp; 17] = [Add, Add, Sub, Mul, Mul, Div, Mod, Min, Max, Eq, Ne, Lt, Le, Gt, Ge, And, Or];
    let (a, x) = &known[noise.below(0, known.len() as i64) as usize];
    let (b, y) = &known[noise.below(0, known.len() as i64) as usize];
    let op = BINARY[noise.below(0, 17) as usize];
    match noise.below(0, 10) {
        0 => {
            let op = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not][noise.below(0, 3) as usize];
            let values = unary(op, x)?;
            Some((a.unary(op), values))
        }
        1 | 2 => {
            let to = [DType::I32, DType::I64, DType::Bool][noise.below(0, 3) as usize];
            let values = cast(to, x)?;
            Some((a.cast(to), values))
        }
        3 => {
            let (c, z) = &known[noise.below(0, known.len() as i64) as usize];
            let Values::Bool(z) = z else { return None };
            let values = choose(z, x, y)?;
            Some((c.select(a, b), values))
        }
        4..=6 => {
            let (value, constant) = match x {
                Values::I32(_) => {
                    let value = I32S[noise.below(0, 14) as usize];
                    (i64::from(value), Values::I32(vec![value; COUNT]))
                }
                Values::I64(_) => {
                    let value = I64S[noise.below(0, I64S.len() as i64) as usize];
                    (value, Values::I64(vec![value; COUNT]))
                }
                _ => return None,
            };
            let values = binary(op, x, &constant)?;
            Some((a.binary_scalar(op, value), values))
        }
        _ => {
            let values = binary(op, x, y)?;
            Some((a.binary(op, b), values))
        }
    }
}

/// The inputs of a program.
fn inputs(noise: &mut Noise) -> Vec<(&'static str, Values)> {
    let mut of = |n: usize| (0..COUNT).map(|_| noise.below(0, n as i64) as usize).collect::<Vec<_>>();
    let (a, b, c, d, e) = (of(I32S.len()), of(I32S.len()), of(I64S.len()), of(I64S.len()), of(F32S.len()));
    vec![
        ("a", Values::I32(a.into_iter().map(|n| I32S[n]).collect())),
        ("b", Values::I32(b.into_iter().map(|n| I32S[n]).collect())),
        ("c", Values::I64(c.into_iter().map(|n| I64S[n]).collect())),
        ("d", Values::I64(d.into_iter().map(|n| I64S[n]).collect())),
        ("e", Values::F32(e.into_iter().map(|n| F32S[n]).collect())),
    ]
}

/// A program of random functions on inputs, or on constants of the same values, and its results.
fn program(seed: u64, constants: bool) -> (GraphCase, Results) {
    let scope = Scope::new();
    let noise = &mut Noise::new(seed, "integers");
    let given = inputs(noise);
    let mut known: Vec<Known> = given
        .iter()
        .map(|(name, values)| {
            let tensor = values.tensor();
            let value = match constants {
                true => scope.constant(tensor),
                false => scope.input(name, tensor.dtype(), &[COUNT.into()]),
            };
            (value, values.clone())
        })
        .collect();
    let first = known.len();
    while known.len() < first + 24 {
        known.extend(step(noise, &known));
    }
    let results: Vec<(String, Known)> =
        known.into_iter().skip(first).enumerate().map(|(n, known)| (format!("y{n}"), known)).skip(12).collect();
    let expected: BTreeMap<String, HostTensor> =
        results.iter().map(|(name, (_, values))| (name.clone(), values.tensor())).collect();
    let outputs: Vec<(&str, Tensor)> =
        results.iter().map(|(name, (tensor, _))| (name.as_str(), tensor.clone())).collect();
    let graph = scope.finish(&outputs).unwrap();
    let inputs: Tensors = given.into_iter().map(|(name, values)| (name.to_owned(), values.tensor())).collect();
    (GraphCase { graph, inputs: if constants { Tensors::new() } else { inputs }, parameters: Tensors::new() }, expected)
}

#[track_caller]
fn meets(what: &str, seed: u64, actual: &Results, expected: &Results, case: &GraphCase) {
    let found = differences(actual, expected, Tolerance::EXACT);
    assert!(found.is_empty(), "{what}, seed {seed}: {}\n{}", found.join("\n"), case.graph.text());
}

/// The CPU, and, if there is an adapter, shaders with and without checks, as apps run them.
fn settings() -> Vec<(&'static str, ModelOptions)> {
    let shaders = |gpu: Gpu| {
        let unchecked = ModelOptions { checked: false, ..on(gpu.clone()) };
        [("shaders with checks", on(gpu)), ("shaders", unchecked)]
    };
    let cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    [("CPU", cpu)].into_iter().chain(gpu().into_iter().flat_map(shaders)).collect()
}

#[test]
fn the_lowest_number_divided_by_minus_one_wraps() {
    let scope = Scope::new();
    let [a, b] = ["a", "b"].map(|name| scope.input(name, DType::I32, &[5.into()]));
    let by = |op| a.binary(op, &b);
    let outputs = [("quotient", by(BinaryOp::Div)), ("rest", by(BinaryOp::Mod))];
    let graph = scope.finish(&outputs).unwrap();
    let tensor = |values: [i32; 5]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        HostTensor::from_bytes(DType::I32, vec![5], bytes).unwrap()
    };
    let numbers = [i32::MIN, i32::MIN, i32::MAX, 7, i32::MIN];
    let inputs = Tensors::from([("a".to_owned(), tensor(numbers)), ("b".to_owned(), tensor([-1, 0, -1, -1, 1]))]);
    let quotients = tensor([i32::MIN, 0, -i32::MAX, -7, i32::MIN]);
    let expected = Results::from([("quotient".to_owned(), quotients), ("rest".to_owned(), tensor([0; 5]))]);
    for (name, options) in settings() {
        let mut session = load(&graph, &Tensors::new(), options).unwrap();
        let found = differences(&run(&mut session, &inputs).unwrap(), &expected, Tolerance::EXACT);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn random_integers_are_those_of_this_language() {
    for seed in 0..24 {
        let (case, expected) = program(seed, false);
        meets("interpreter", seed, &oracle(&case.graph, &case.inputs, &case.parameters).unwrap(), &expected, &case);
        for (name, options) in settings() {
            let mut session = load(&case.graph, &case.parameters, options).unwrap();
            meets(name, seed, &run(&mut session, &case.inputs).unwrap(), &expected, &case);
        }
        let (folded, _) = program(seed, true);
        let mut session = session(&folded.graph, &folded.parameters, Kernel::Cpu).unwrap().unwrap();
        meets("folded constants", seed, &run(&mut session, &folded.inputs).unwrap(), &expected, &folded);
    }
}

#[test]
fn scalars_keep_64_bits() {
    let scope = Scope::new();
    let x = scope.input("x", DType::I64, &[2.into()]);
    let large = (1i64 << 53) + 1;
    let graph = scope.finish(&[("sum", &x + large), ("least", x.binary_scalar(BinaryOp::Max, i64::MIN + 1))]).unwrap();
    let inputs = Tensors::from([("x".to_owned(), HostTensor::i64(vec![2], &[0, i64::MIN]).unwrap())]);
    let case = GraphCase { graph, inputs, parameters: Tensors::new() };
    case.check();
    let results = oracle(&case.graph, &case.inputs, &case.parameters).unwrap();
    assert_eq!(results["sum"].to_i64(), [large, i64::MIN + large]);
    assert_eq!(results["least"].to_i64(), [0, i64::MIN + 1]);
}

#[test]
fn scalars_that_a_type_does_not_hold_are_errors() {
    for (dtype, value, range) in [
        (DType::I32, 0.5, "-2147483648 to 2147483647"),
        (DType::I32, 3e9, "-2147483648 to 2147483647"),
        (DType::I64, 1e19, "-9223372036854775808 to 9223372036854775807"),
        (DType::I64, f64::NAN, "-9223372036854775808 to 9223372036854775807"),
        (DType::U32, 3e9, "-2147483648 to 2147483647"),
    ] {
        let scope = Scope::new();
        let x = scope.input("x", dtype, &[2.into()]);
        let error = scope.finish(&[("y", &x * value)]).unwrap_err().to_string();
        assert!(error.contains(&format!("`value` must be a whole number from {range}")), "{error}");
    }
}

/// Masks of integers that wrap around, combined with the positions of rows and keys.
type Mask = fn(&Ragged, &Tensor) -> Tensor;

fn row(rows: &Ragged) -> Tensor {
    rows.row_index(rows, 1)
}

fn key(rows: &Ragged) -> Tensor {
    rows.key_index(rows, 1)
}

#[test]
fn masks_of_integers_that_wrap_around_pass_over_no_key_that_counts() {
    let masks: [Mask; 7] = [
        |rows, x| (&key(rows) + x).ge(row(rows)),
        |rows, x| (x - &key(rows)).lt(row(rows)),
        |rows, x| (&key(rows) * x).gt(row(rows)),
        |rows, x| (&(x - &key(rows)).abs() - &row(rows)).le(x.abs()),
        |rows, x| (-&(&key(rows) + x)).gt(row(rows)),
        |rows, x| (&(&key(rows) * &row(rows)) * 40_000_000i64).gt(x),
        |rows, x| (&(&key(rows).maximum(x) + &row(rows)) / 3i64).lt(key(rows)),
    ];
    for (number, mask) in masks.into_iter().enumerate() {
        let scope = Scope::new();
        let rows = scope.lengths("lengths", scope.size("batch"));
        let total = rows.total.clone();
        let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F32, &[total.clone(), 1.into(), 4.into()]));
        let x = scope.input("x", DType::I32, &[total]);
        let mask = mask(&rows, &rows.per_row(&rows, 1, &x));
        let scores = mask.select(&q.scores(&k, &rows, &rows).silu(), &scope.scalar(DType::F32, 0.0));
        let graph = scope.finish(&[("y", &scores.weighted_sum(&v, &rows, &rows) * 0.1)]).unwrap();
        let lengths = [70i64, 0, 3, 150];
        let count = lengths.iter().sum::<i64>() as usize;
        let mut inputs: Tensors = ["q", "k", "v"]
            .map(|name| (name.to_owned(), Noise::new(1, name).floats(DType::F32, &[count, 1, 4], 1.0)))
            .into();
        // Runs of rows with one value, so that tiles are decided as a whole.
        let values: Vec<f64> = (0..count).map(|row| I32S[(row / 18 + number) % 14].into()).collect();
        inputs.insert("x".to_owned(), HostTensor::from_f64(DType::I32, vec![count], &values).unwrap());
        inputs.insert("lengths".to_owned(), HostTensor::lengths(&lengths));
        GraphCase { graph, inputs, parameters: Tensors::new() }.check();
    }
}
