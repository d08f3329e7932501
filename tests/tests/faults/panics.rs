//! Custom functions and operators that panic.

use rewire_graph::op::custom::{Custom, Shader, View, ViewMut};
use rewire_graph::op::{Call, Op};
use rewire_graph::pointwise::ScalarFunction;
use rewire_graph::{DType, Graph, HostTensor, Scope, Type, TypeError};
use rewire_runtime::{Inputs, Kernel, RunError, Session};
use rewire_tests::backend::{Tensors, session};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;
const WIDTH: usize = 24;
/// What both refuse.
const BAD: f32 = 1e6;

/// `x / (1 + |x|)` of what is not [`BAD`].
#[derive(Debug)]
struct Fragile;

impl ScalarFunction for Fragile {
    fn name(&self) -> &str {
        "fragile"
    }

    fn arguments(&self) -> usize {
        1
    }

    fn wgsl(&self) -> String {
        "fn fragile(x: f32) -> f32 { return x / (1.0f + abs(x)); }".to_owned()
    }

    fn evaluate(&self, x: &[f32]) -> f32 {
        assert!(x[0] < BAD, "{} is too large", x[0]);
        x[0] / (1.0 + x[0].abs())
    }
}

/// Twice a tensor without [`BAD`].
#[derive(Clone, Debug, PartialEq, Hash)]
struct Brittle;

impl Op for Brittle {
    fn name(&self) -> &str {
        "brittle"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        Ok(inputs.iter().map(|x| (*x).clone()).collect())
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }
}

impl Custom for Brittle {
    fn shader(&self, operands: &[&Type], _: &Type) -> Shader {
        Shader {
            operands: vec!["x".to_owned()],
            result: "y".to_owned(),
            wgsl: "fn run(workgroup: i32, thread: i32) {\n    let row = workgroup * 64 + thread;\n    if (row < extent_x_0()) {\n        \
                   store_y(row, 0, 2.0f * load_x(row, 0));\n    }\n}"
                .to_owned(),
            threads: 64,
            extents: vec![operands[0].shape[0].clone()],
            tile: 64,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        for (y, x) in result.floats().iter_mut().zip(operands[0].floats()) {
            assert!(*x < BAD, "{x} is too large");
            *y = 2.0 * x;
        }
        Ok(())
    }
}

/// The function between sums and a norm, so that it shares a kernel with both, and the operator behind it.
fn model() -> Graph {
    let scope = Scope::new();
    let shape = [scope.size("rows"), WIDTH.into()];
    let x = scope.input("x", F32, &shape);
    let shifted = &x * 1.5;
    let called = &scope.apply(Call::new(Fragile), &[&shifted]) + &x;
    let other = scope.input("other", F32, &shape);
    let own = &scope.apply(Brittle, &[&other]) - &x;
    scope.finish(&[("called", &called.normalize(1e-5) * &called), ("own", own)]).unwrap()
}

fn inputs(rows: usize, seed: u64) -> Inputs {
    let floats = |name| Noise::new(seed, name).floats(F32, &[rows, WIDTH], 2.0);
    Inputs::new().with("x", floats("x")).with("other", floats("other"))
}

/// The inputs with one invalid number in the last row.
fn bad(rows: usize, name: &str) -> Inputs {
    let mut values = Noise::new(1, name).floats(F32, &[rows, WIDTH], 2.0).to_f32();
    values[rows * WIDTH - 3] = 2.0 * BAD;
    inputs(rows, 1).with(name, HostTensor::f32(vec![rows, WIDTH], &values).unwrap())
}

fn fresh() -> Session {
    session(&model(), &Tensors::new(), Kernel::Cpu).unwrap().unwrap()
}

#[test]
fn a_panic_is_an_error_that_names_what_panicked() {
    let mut session = fresh();
    for (input, name, value) in [("x", "fragile", "3000000"), ("other", "brittle", "2000000")] {
        let error = session.run(&bad(5, input)).unwrap_err();
        assert!(matches!(error, RunError::Cpu { .. }), "{error:?}");
        assert!(error.to_string().ends_with(&format!("`{name}` panicked: {value} is too large")), "{error}");
    }
}

#[test]
fn the_run_after_a_panic_is_right() {
    let mut session = fresh();
    for (round, rows) in [700, 3, 64, 1, 700].into_iter().enumerate() {
        let inputs = inputs(rows, round as u64);
        let expected = fresh().run(&inputs).unwrap();
        for input in ["x", "other"] {
            session.run(&bad(rows + round % 2, input)).unwrap_err();
            assert_eq!(session.run(&inputs).unwrap(), expected, "round {round} after a bad `{input}`");
        }
    }
}
