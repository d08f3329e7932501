//! NaN, infinities, zeros and numbers at the ends of the range mean the same in the interpreter and on every kernel.

mod attention;
mod conversions;
mod functions;
mod rows;

use rewire_graph::{DType, Dim, HostTensor, Scope, Tensor};
use rewire_graph_rewrite::device::Target;
use rewire_graph_rewrite::optimize;
use rewire_runtime::{Kernel, ModelOptions};
use rewire_tests::backend::{Tensors, gpu, load, on, options, oracle, run};
use rewire_tests::compare::Results;

const F32: DType = DType::F32;

/// Values without rounding errors, and with exact sums and products of two.
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
    65_519.9,
    65_520.0,
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

/// An unexpected result; the sign of zeros counts if the expectation specifies it.
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

/// A test's check of elements: by name of the output and position, true if two of them differ.
trait Differ: Fn(&str, usize, f64, f64) -> bool {}

impl<F: Fn(&str, usize, f64, f64) -> bool> Differ for F {}

/// The sign of a zero counts where the function's definition does not leave it open.
fn values_differ(name: &str, _: usize, actual: f64, expected: f64) -> bool {
    let open = ["minimum", "maximum", "relu", "mod", "silu", "sin", "erf", "tanh", "round", "ceil", "trunc"];
    differs(actual, expected, !open.iter().any(|open| name.starts_with(open)))
}

/// The elements of results that differ, with their description by `describe`.
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

/// Sessions' options: the CPU, and a GPU with and without optional features.
fn kernels() -> Vec<(String, ModelOptions)> {
    let mut kernels: Vec<(String, ModelOptions)> = vec![];
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
    hold_where(scope, outputs, inputs, differ, describe, |_| true);
}

/// True for floats that every WGSL compiler handles: those that are not finite may be assumed not to occur, and quotients by a
/// divisor beyond 2^126 may be 0.
fn is_ordinary(x: f64) -> bool {
    x.abs() <= 2f64.powi(126)
}

/// As [`hold`], for functions of the elements of `inputs`. Hardware GPUs are compared only where these are ordinary.
fn hold_functions(
    scope: Scope,
    outputs: Vec<(String, Tensor)>,
    inputs: &Tensors,
    differ: impl Differ,
    describe: impl Fn(usize) -> String,
) {
    let values: Vec<Vec<f64>> = inputs.values().map(HostTensor::to_f64).collect();
    hold_where(scope, outputs, inputs, differ, describe, |n| values.iter().all(|values| is_ordinary(values[n])));
}

/// As [`hold`]. Hardware GPUs are compared only at the positions of `ordinary` inputs with finite results.
fn hold_where(
    scope: Scope,
    outputs: Vec<(String, Tensor)>,
    inputs: &Tensors,
    differ: impl Differ,
    describe: impl Fn(usize) -> String,
    ordinary: impl Fn(usize) -> bool,
) {
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let graph = scope.finish(&named).unwrap();
    let none = Tensors::new();
    let expected = oracle(&graph, inputs, &none).unwrap();
    let (rewritten, _) = optimize(graph.clone()).unwrap();
    let mut found = vec![];
    let mut compare = |kernel: &str, actual: &Results, differ: &dyn Fn(&str, usize, f64, f64) -> bool| {
        let wrong = wrong(actual, &expected, &differ, &describe);
        found.extend(wrong.into_iter().map(|text| format!("{kernel}: {text}")));
    };
    compare("rewritten", &oracle(&rewritten, inputs, &none).unwrap(), &differ);
    for (name, options) in kernels() {
        let hardware = options.gpu.as_ref().is_some_and(|gpu| !gpu.target().software);
        let actual = run(&mut load(&graph, &none, options).unwrap(), inputs).unwrap();
        compare(&name, &actual, &|name, n, actual, expected| {
            (!hardware || ordinary(n) && expected.is_finite()) && differ(name, n, actual, expected)
        });
    }
    assert!(found.is_empty(), "{} differ\n{}", found.len(), found[..found.len().min(60)].join("\n"));
}

/// Shapes with this many elements, computed four at a time and one at a time.
fn shapes(count: usize) -> [Vec<usize>; 2] {
    [vec![count], vec![count, 1]]
}

fn tensor(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::f32(shape.to_vec(), values).unwrap()
}

fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&n| n.into()).collect()
}
