//! Rules: matches of patterns, accepted patches, and error messages.
#![allow(clippy::unwrap_used)]

mod attention;
mod folders;
mod matching;
mod patches;
mod round_trip;
mod siblings;

use rewire_graph::{DType, Graph, HostTensor, Scope, Tensor, interpret};
use rewire_graph_rewrite::rules::{Rule, rewrite};
use std::collections::HashMap;

/// A graph of `x` and `y`, both `[rows, 6]`.
fn graph(model: impl Fn(&Scope, &Tensor, &Tensor) -> Vec<Tensor>) -> Graph {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let [x, y] = ["x", "y"].map(|name| scope.input(name, DType::F32, &[rows.clone(), 6.into()]));
    let outputs = model(&scope, &x, &y);
    let names: Vec<String> = (0..outputs.len()).map(|n| format!("out{n}")).collect();
    let named: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
    scope.finish(&named).unwrap()
}

fn values(seed: f32) -> Vec<f32> {
    (0..18).map(|n| ((n as f32 + seed) * 1.7).sin() * 2.0).collect()
}

/// The outputs of a graph in order.
fn outputs(graph: &Graph) -> Vec<Vec<f64>> {
    let tensor = |seed| HostTensor::f32(vec![3, 6], &values(seed)).unwrap();
    let inputs = HashMap::from([("x".to_owned(), tensor(0.3)), ("y".to_owned(), tensor(5.1))]);
    let parameters = graph.ids().filter_map(|id| {
        let parameter = graph.node(id)?.op.downcast_ref::<rewire_graph::op::Parameter>()?;
        let shape: Vec<usize> = parameter.ty.shape.iter().map(|dim| dim.as_const().unwrap()).collect();
        let seed = parameter.name.len() as f32 + parameter.name.bytes().map(f32::from).sum::<f32>();
        let elements: Vec<f32> = (0..shape.iter().product()).map(|n| ((n as f32 + seed) * 0.9).cos()).collect();
        Some((parameter.name.clone(), HostTensor::f32(shape, &elements).unwrap()))
    });
    interpret(graph, &inputs, &parameters.collect()).unwrap().values().map(HostTensor::to_f64).collect()
}

fn close(a: &Graph, b: &Graph) {
    for (a, b) in outputs(a).iter().flatten().zip(outputs(b).iter().flatten()) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b}");
    }
}

/// The rewritten graph and the number of times the rules fire, after checking that results are unchanged.
fn fires(graph: &Graph, rules: &[&dyn Rule]) -> (Graph, usize) {
    let (rewritten, fired) = rewrite(graph, rules).unwrap();
    close(&rewritten, graph);
    (rewritten, fired.len())
}

fn count(graph: &Graph, op: &str) -> usize {
    graph.counts().get(op).copied().unwrap_or(0)
}
