//! Custom functions and operators: where they fuse, how they are found, and that every backend agrees.

mod functions;
mod imported;
mod operators;

use rewire_graph::{HostTensor, Scope, Tensor};
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::Kernel;
use rewire_tests::backend::{Tensors, oracle, run, session};
use rewire_tests::case::GraphCase;
use rewire_tests::compare::{Tolerance, differences};
use rewire_tests::noise::Noise;

const F32: rewire_graph::DType = rewire_graph::DType::F32;
const SIZES: &[(&str, usize)] = &[("rows", 37), ("batch", 5)];

/// A graph with inputs of the sizes above.
fn case(model: impl Fn(&Scope) -> Vec<(&'static str, Tensor)>) -> GraphCase {
    let scope = Scope::new();
    let outputs = model(&scope);
    GraphCase::random(scope.finish(&outputs).unwrap(), SIZES, 7)
}

/// A plan as a file holds it.
fn stored(plan: &Plan) -> Plan {
    serde_json::from_str(&serde_json::to_string(plan).unwrap()).unwrap()
}

/// Runs a model of jagged rows `x` `[total, width]` with lengths on every backend.
fn check_jagged(width: usize, lengths: &[i64], model: impl Fn(&Scope, &Tensor, &rewire_graph::Ragged) -> Tensor) {
    let scope = Scope::new();
    let rows = scope.lengths("lengths", &scope.size("samples"));
    let x = scope.input("x", F32, &[rows.total.clone(), width.into()]);
    let y = model(&scope, &x, &rows);
    let graph = scope.finish(&[("y", y)]).unwrap();
    let total = lengths.iter().sum::<i64>() as usize;
    let inputs: Tensors = [
        ("lengths".to_owned(), HostTensor::lengths(lengths)),
        ("x".to_owned(), Noise::new(3, "x").floats(F32, &[total, width], 1.3)),
    ]
    .into();
    let parameters = Tensors::new();
    let expected = oracle(&graph, &inputs, &parameters).unwrap();
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        let Some(mut session) = session(&graph, &parameters, kernel).unwrap() else { continue };
        let actual = run(&mut session, &inputs).unwrap();
        let found = differences(&actual, &expected, Tolerance::SINGLE);
        assert!(found.is_empty(), "{kernel} {lengths:?}: {}", found.join("\n"));
    }
}
