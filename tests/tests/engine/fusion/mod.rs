//! Fusion: steps of plans by name and number.

mod bindings;
mod models;
mod pointwise;
mod products;
mod rows;

use rewire_emit::mapping::map;
use rewire_graph::{DType, Dim, Graph, Scope, Tensor};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::Plan;
use rewire_tests::backend::plan;

const F32: DType = DType::F32;

/// The plan of a model of `x` `[rows, width]`.
fn plan_of(width: usize, model: impl Fn(&Scope, &Tensor) -> Vec<Tensor>) -> Plan {
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), width.into()]);
    let outputs = model(&scope, &x);
    finish(scope, outputs)
}

fn finish(scope: Scope, outputs: Vec<Tensor>) -> Plan {
    let names: Vec<String> = (0..outputs.len()).map(|n| format!("out{n}")).collect();
    let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
    let graph: Graph = scope.finish(&named).unwrap();
    plan(&graph).unwrap()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.name.as_str()).collect()
}

fn weight(scope: &Scope, name: &str, shape: &[usize]) -> Tensor {
    scope.parameter(name, F32, &shape.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>())
}

fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    let bias = weight(scope, &format!("{name}.bias"), &[out]);
    x.linear(&weight(scope, &format!("{name}.weight"), &[out, x.width()]), Some(&bias))
}

/// Every kernel has a shader for the limits of the baseline.
fn emits_for_the_baseline(plan: &Plan) {
    for mapped in map(plan, &Target::BASELINE, &Tuning::default()) {
        assert_eq!(mapped.as_ref().err(), None);
    }
}
