//! NaN, infinities, zeros and numbers at the ends of the range mean the same in the interpreter and on every kernel.

use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, HostTensor, Scope, Tensor};
use rewire_graph_rewrite::emit::Target;
use rewire_graph_rewrite::optimize;
use rewire_runtime::{Kernel, SessionOptions};
use rewire_tests::backend::{Tensors, gpu, load, on, options, oracle, run};
use rewire_tests::compare::Results;

const F32: DType = DType::F32;

/// Functions of one float.
const UNARY: [UnaryOp; 17] = {
    use UnaryOp::*;
    [Neg, Abs, Exp, Log, Sqrt, Rsqrt, Sigmoid, Silu, Relu, Tanh, Erf, Sin, Cos, Floor, Ceil, Trunc, Round]
};

/// Functions of two floats.
const BINARY: [BinaryOp; 14] = {
    use BinaryOp::*;
    [Add, Sub, Mul, Div, Mod, Pow, Min, Max, Eq, Ne, Lt, Le, Gt, Ge]
};

/// What has no rounding, and where sums and products of two are exact.
const PLAIN: [f32; 16] = [
    f32::NAN,
    -f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -3.0,
    0.5,
    -2.5,
    1e30,
    -1e30,
    1e-30,
    -1e-30,
];

/// Numbers where functions and conversions end.
const ENDS: [f32; 32] = [
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1e-40,
    -1e-40,
    1.5,
    2.5,
    -1.5,
    -0.5,
    20.5,
    -20.5,
    87.5,
    -87.5,
    89.5,
    -89.5,
    104.5,
    -104.5,
    65_504.0,
    -65_504.0,
    65_600.0,
    -65_600.0,
    2_147_483_500.0,
    2_147_483_600.0,
    -2_147_483_600.0,
    -2_147_484_000.0,
    9.223_371_5e18,
    9.223_372e18,
    -9.223_372e18,
    -9.3e18,
    1e12,
    -1e12,
    f32::MAX,
    f32::MIN,
];

fn all() -> Vec<f32> {
    PLAIN.into_iter().chain(ENDS).collect()
}

/// A result that is not what was expected of it; of zeros the sign counts where it is told.
fn differs(actual: f64, expected: f64, signed: bool) -> bool {
    // A factor of what is smaller may have been 0.
    let tiny = 100.0 * f64::from(f32::MIN_POSITIVE);
    if expected.is_nan() || actual.is_nan() {
        return expected.is_nan() != actual.is_nan();
    }
    if expected.is_infinite() || actual.is_infinite() {
        return expected != actual;
    }
    let sign = signed && actual == 0.0 && expected == 0.0 && actual.is_sign_negative() != expected.is_sign_negative();
    sign || (actual - expected).abs() > 1e-4 * expected.abs() + tiny
}

/// True for results of another kind: NaN, one of the infinities, or a number.
fn is_another_kind(actual: f64, expected: f64) -> bool {
    let kind = |x: f64| if x.is_finite() { 0.0 } else { x };
    differs(kind(actual), kind(expected), false)
}

/// What a test holds elements to: by name of the output and place, whether two of them differ.
trait Differ: Fn(&str, usize, f64, f64) -> bool {}

impl<F: Fn(&str, usize, f64, f64) -> bool> Differ for F {}

/// The sign of a zero counts where the function's definition does not leave it open.
fn values_differ(name: &str, _: usize, actual: f64, expected: f64) -> bool {
    let open = ["minimum", "maximum", "relu", "mod", "silu", "sin", "erf", "tanh", "round", "ceil", "trunc"];
    differs(actual, expected, !open.iter().any(|open| name.starts_with(open)))
}

/// The elements of results that differ, with what `describe` tells of their place.
fn wrong(
    actual: &Results,
    expected: &Results,
    differ: &impl Differ,
    describe: &impl Fn(usize) -> String,
) -> Vec<String> {
    let mut found = vec![];
    for (name, expected) in expected {
        let (a, e) = (actual[name].to_f64(), expected.to_f64());
        assert_eq!(a.len(), e.len(), "{name}");
        let integers = !expected.dtype().is_float();
        let bad = |n: &usize| if integers { a[*n] != e[*n] } else { differ(name, *n, a[*n], e[*n]) };
        found.extend((0..a.len()).filter(bad).map(|n| format!("{name}{} = {:?}, not {:?}", describe(n), a[n], e[n])));
    }
    found
}

/// Sessions' options: the CPU, and a GPU with and without what it may lack.
fn kernels() -> Vec<(String, SessionOptions)> {
    let mut kernels: Vec<(String, SessionOptions)> = vec![];
    kernels.extend(options(Kernel::Cpu).map(|options| ("cpu".to_owned(), options)));
    if let Some(gpu) = gpu() {
        kernels.push(("gpu".to_owned(), on(gpu.clone())));
        kernels.push(("baseline".to_owned(), on(gpu.restricted(&Target::BASELINE))));
    }
    kernels
}

/// Holds every kernel to the interpreter, and the rewritten graph too.
fn hold(
    scope: Scope,
    outputs: Vec<(String, Tensor)>,
    inputs: &Tensors,
    differ: impl Differ,
    describe: impl Fn(usize) -> String,
) {
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let graph = scope.finish(&named).unwrap();
    let none = Tensors::new();
    let expected = oracle(&graph, inputs, &none).unwrap();
    let (rewritten, _) = optimize(graph.clone()).unwrap();
    let mut found = vec![];
    let mut compare = |kernel: &str, actual: &Results| {
        let wrong = wrong(actual, &expected, &differ, &describe);
        found.extend(wrong.into_iter().map(|text| format!("{kernel}: {text}")));
    };
    compare("rewritten", &oracle(&rewritten, inputs, &none).unwrap());
    for (name, options) in kernels() {
        compare(&name, &run(&mut load(&graph, &none, options).unwrap(), inputs).unwrap());
    }
    assert!(found.is_empty(), "{} differ\n{}", found.len(), found[..found.len().min(60)].join("\n"));
}

/// Shapes of so many elements that are computed four at a time, and one at a time.
fn shapes(count: usize) -> [Vec<usize>; 2] {
    [vec![count], vec![count, 1]]
}

fn tensor(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::f32(shape.to_vec(), values).unwrap()
}

fn dims(shape: &[usize]) -> Vec<rewire_graph::Dim> {
    shape.iter().map(|&n| n.into()).collect()
}

#[test]
fn functions_of_one_float() {
    let values = all();
    for shape in shapes(values.len()) {
        let scope = Scope::new();
        let x = scope.input("x", F32, &dims(&shape));
        let outputs = UNARY.map(|op| (op.name().to_owned(), x.unary(op))).to_vec();
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values))]);
        // Logarithms may be those of numbers that have lost digits.
        let lost = |name: &str, n: usize| name == "log" && values[n].is_subnormal();
        let differ = |name: &str, n, a, b| !lost(name, n) && values_differ(name, n, a, b);
        hold(scope, outputs, &inputs, differ, |n| format!("({:?})", values[n]));
    }
}

#[test]
fn functions_of_two_floats() {
    let values = all();
    let count = values.len();
    let (mut a, mut b) = (vec![], vec![]);
    for x in &values {
        a.extend(vec![*x; count]);
        b.extend(&values);
    }
    for shape in shapes(count * count) {
        let scope = Scope::new();
        let [x, y] = ["x", "y"].map(|name| scope.input(name, F32, &dims(&shape)));
        let outputs = BINARY.map(|op| (op.name().to_owned(), x.binary(op, &y))).to_vec();
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &a)), ("y".to_owned(), tensor(&shape, &b))]);
        // Powers are exponentials of logarithms, which lose digits of the smallest and may round beyond the largest.
        let lost = |name: &str, n: usize| name == "pow" && (a[n].is_subnormal() || a[n].abs() == f32::MAX);
        let differ = |name: &str, n, x, y| !lost(name, n) && values_differ(name, n, x, y);
        hold(scope, outputs, &inputs, differ, |n| format!("({:?}, {:?})", a[n], b[n]));
    }
}

#[test]
fn functions_of_a_float_and_itself() {
    let values = all();
    for shape in shapes(values.len()) {
        let scope = Scope::new();
        let x = scope.input("x", F32, &dims(&shape));
        let outputs = BINARY.map(|op| (op.name().to_owned(), x.binary(op, &x))).to_vec();
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values))]);
        hold(scope, outputs, &inputs, values_differ, |n| format!("({:?})", values[n]));
    }
}

#[test]
fn functions_of_a_float_and_a_literal() {
    let values = PLAIN;
    for literal in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, 2.0, -1e30] {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[values.len().into()]);
        let literal = f64::from(literal);
        let mut outputs = vec![];
        for op in BINARY {
            outputs.push((format!("{} of literal", op.name()), scope.scalar(F32, literal).binary(op, &x)));
            outputs.push((format!("{} with literal", op.name()), x.binary_scalar(op, literal)));
        }
        let inputs = Tensors::from([("x".to_owned(), tensor(&[values.len()], &values))]);
        hold(scope, outputs, &inputs, values_differ, |n| format!("({:?}, {literal:?})", values[n]));
    }
}

#[test]
fn functions_of_literals() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[4.into()]);
    let mut outputs = vec![];
    for (n, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, -1.0, 1e30].into_iter().enumerate() {
        for op in UNARY {
            let chosen = x.gt(&scope.scalar(F32, 0.0)).select(&scope.scalar(F32, value).unary(op), &x);
            outputs.push((format!("{} of literal {n}", op.name()), chosen));
        }
    }
    let inputs = Tensors::from([("x".to_owned(), tensor(&[4], &[1.0, -1.0, f32::NAN, f32::INFINITY]))]);
    hold(scope, outputs, &inputs, values_differ, |n| format!("[{n}]"));
}

#[test]
fn conversions() {
    let values = all();
    for shape in shapes(values.len()) {
        let scope = Scope::new();
        let x = scope.input("x", F32, &dims(&shape));
        let outputs = vec![
            ("i32".to_owned(), x.cast(DType::I32)),
            ("i64".to_owned(), x.cast(DType::I64)),
            ("truth".to_owned(), x.cast(DType::Bool).cast(DType::I32)),
            ("negated".to_owned(), x.cast(DType::Bool).not().cast(DType::I32)),
        ];
        let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values))]);
        hold(scope, outputs, &inputs, values_differ, |n| format!("({:?})", values[n]));
    }
}

/// Beyond the range of halves the nearest is stored; infinities and NaN stay.
#[test]
fn halves() {
    let values = all();
    let stored = |x: f32| {
        let nearest = if x.is_finite() { x.clamp(-65_504.0, 65_504.0) } else { x };
        HostTensor::from_f64(DType::F16, vec![1], &[nearest.into()]).unwrap().to_f64()[0]
    };
    for shape in shapes(values.len()) {
        for (name, options) in kernels() {
            let scope = Scope::new();
            let x = scope.input("x", F32, &dims(&shape));
            let h = scope.input("h", DType::F16, &dims(&shape));
            let graph = scope.finish(&[("stored", x.cast(DType::F16)), ("loaded", h.cast(F32))]).unwrap();
            let halves: Vec<f64> = values.iter().map(|&x| x.into()).collect();
            let halves = HostTensor::from_f64(DType::F16, shape.clone(), &halves).unwrap();
            let loaded = halves.to_f64();
            let inputs = Tensors::from([("x".to_owned(), tensor(&shape, &values)), ("h".to_owned(), halves)]);
            let actual = run(&mut load(&graph, &Tensors::new(), options).unwrap(), &inputs).unwrap();
            for (n, &x) in values.iter().enumerate() {
                let (a, b) = (actual["stored"].to_f64()[n], actual["loaded"].to_f64()[n]);
                assert!(
                    !differs(a, stored(x), true) || stored(x).abs() < 7e-5 && a == 0.0,
                    "{name}: {x:?} stored as {a}"
                );
                assert!(
                    !differs(b, loaded[n], true) || b == 0.0 && loaded[n].abs() < 7e-5,
                    "{name}: {x:?} loaded as {b}"
                );
            }
        }
    }
}

/// What one function makes of NaN, infinities and zeros, another one takes.
#[test]
fn functions_of_functions() {
    // What the sign of a zero becomes depends on which it is.
    let values: Vec<f32> = PLAIN.into_iter().filter(|x| *x != 0.0 || x.is_sign_positive()).collect();
    let scope = Scope::new();
    let x = scope.input("x", F32, &[values.len().into()]);
    let mut outputs = vec![];
    for inner in UNARY {
        let y = x.unary(inner);
        for outer in [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Rsqrt, UnaryOp::Silu, UnaryOp::Tanh, UnaryOp::Floor] {
            outputs.push((format!("{} {}", outer.name(), inner.name()), y.unary(outer)));
        }
        for outer in [BinaryOp::Max, BinaryOp::Min, BinaryOp::Mod, BinaryOp::Div] {
            outputs.push((format!("{} {} x", outer.name(), inner.name()), y.binary(outer, &x)));
            outputs.push((format!("{} x {}", outer.name(), inner.name()), x.binary(outer, &y)));
        }
        let below = y.lt(&x);
        outputs.push((format!("not lt {}", inner.name()), below.not().cast(DType::I32)));
        outputs.push((format!("choice {}", inner.name()), below.not().select(&y, &x)));
        outputs.push((format!("clamp {}", inner.name()), y.clamp(Some(-2.0), Some(1.5))));
    }
    let inputs = Tensors::from([("x".to_owned(), tensor(&[values.len()], &values))]);
    hold(scope, outputs, &inputs, |_, _, a, b| is_another_kind(a, b), |n| format!("({:?})", values[n]));
}

/// Rows of noise with something else in one place.
fn rows(width: usize, places: &[f32]) -> Vec<f32> {
    let mut values: Vec<f32> = (0..places.len() * width).map(|n| ((n * 37 % 101) as f32 - 50.0) / 16.0).collect();
    for (row, place) in places.iter().enumerate() {
        values[row * width + (row * 7 + 3) % width] = *place;
    }
    values
}

#[test]
fn reductions_and_norms_of_rows() {
    let places = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, 0.5, -0.0];
    for width in [1, 5, 64, 300, 1030] {
        let mut values = rows(width, &places);
        for row in [vec![f32::NEG_INFINITY; width], vec![f32::INFINITY; width], vec![f32::NAN; width]] {
            values.extend(row);
        }
        let mut mixed = rows(width, &[f32::INFINITY]);
        mixed[0] = f32::NEG_INFINITY;
        values.extend(mixed);
        let count = values.len() / width;
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), width.into()]);
        let (w, b) = (scope.input("w", F32, &[width.into()]), scope.input("b", F32, &[width.into()]));
        let mut outputs = vec![
            ("max".to_owned(), x.max(1)),
            ("min".to_owned(), x.min(1)),
            ("sum".to_owned(), x.sum(1)),
            ("shifted".to_owned(), &x - &x.max(1)),
            ("rms norm".to_owned(), x.rms_norm(&w, 1e-5)),
        ];
        // Drivers take the difference of an element and the only one of its row for 0.
        if width > 1 {
            outputs.push(("softmax".to_owned(), x.softmax(1)));
            outputs.push(("layer norm".to_owned(), x.layer_norm(&w, &b, 1e-5)));
        }
        let affine = tensor(&[width], &rows(width, &[0.5]));
        let inputs = Tensors::from([
            ("x".to_owned(), tensor(&[count, width], &values)),
            ("w".to_owned(), affine.clone()),
            ("b".to_owned(), affine),
        ]);
        hold(
            scope,
            outputs,
            &inputs,
            |_, _, a, b| differs(a, b, false),
            |n| format!("[{n}] of {count} rows of {width}"),
        );
    }
}

/// Zeros that a sum leaves negative stay so.
#[test]
fn adding_zero_is_no_identity() {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[PLAIN.len().into()]);
    let outputs = vec![
        ("plus zero".to_owned(), &x + 0.0),
        ("plus negative zero".to_owned(), &x + -0.0),
        ("minus zero".to_owned(), &x - 0.0),
        ("times one".to_owned(), &x * 1.0),
    ];
    let inputs = Tensors::from([("x".to_owned(), tensor(&[PLAIN.len()], &PLAIN))]);
    hold(scope, outputs, &inputs, |_, _, a, b| differs(a, b, true), |n| format!("({:?})", PLAIN[n]));
}
