//! Merging of linear layers with the same operand.

use rewire_graph::op::{Concat, Permute};
use rewire_graph::{DType, Graph, Scope, Tensor, Value};
use rewire_graph_rewrite::passes::{MergeSiblings, Pipeline};

/// Attention over jagged rows whose queries and keys are normalized several times: the scores are far from the layers.
fn attention() -> Graph {
    let scope = Scope::new();
    let a = scope.lengths("lengths", &scope.size("samples"));
    let x = scope.input("x", DType::F32, &[a.total.clone(), 16.into()]);
    let linear = |name: &str| x.linear(&scope.parameter(name, DType::F32, &[8.into(), 16.into()]), None);
    let heads = |x: Tensor| x.reshape(&[a.total.clone(), 2.into(), 4.into()]);
    let [q, k] = ["q", "k"].map(|name| heads(linear(name)).normalize(1e-5).normalize(1e-4).normalize(1e-3));
    let weights = q.scores(&k, &a, &a).silu();
    let attended = weights.weighted_sum(&heads(linear("v")), &a, &a);
    scope.finish(&[("attended", attended)]).unwrap()
}

#[test]
fn layers_far_before_scores_are_merged() {
    let (graph, report) = Pipeline::new(vec![Box::new(MergeSiblings)]).run(attention()).unwrap();
    let merged: Vec<usize> = report.passes.iter().map(|pass| pass.applications.len()).collect();
    assert_eq!(merged, [1], "{report}");
    // The stored matrices are joined by rows, which is their layout in memory.
    let live = graph.live();
    let joined = graph.ids().filter(|id| live.contains(id) && graph.op::<Concat>(*id).is_some());
    let joined: Vec<_> = joined.collect();
    let [joined] = joined[..] else { panic!("{}", graph.text()) };
    assert_eq!(graph.op::<Concat>(joined).unwrap().axis, 0);
    let shape = &graph.ty(Value { node: joined, port: 0 }).unwrap().shape;
    assert_eq!(shape[..], [24.into(), 16.into()]);
    assert!(graph.users(joined).iter().all(|id| graph.op::<Permute>(*id).is_some()));
}
