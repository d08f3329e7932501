//! What fuses, and that fusing keeps the meaning.

use rewire_graph::{DType, Graph, HostTensor, Ragged, Scope, Tensor, interpret};
use rewire_graph_rewrite::{lower, optimize};
use std::collections::HashMap;

const E: usize = 16;
const H: usize = 2;
const D: usize = 6;

/// A layer of sequential transduction units with a causal mask.
fn stu_layer(scope: &Scope, x: &Tensor, rows: &Ragged) -> Tensor {
    let f32 = DType::F32;
    let vector = |name: &str, n: usize| scope.parameter(name, f32, &[n.into()]);
    let normed = x.layer_norm(&vector("in_w", E), &vector("in_b", E), 1e-6);
    let uvqk =
        &normed.matmul(&scope.parameter("uvqk", f32, &[E.into(), (4 * H * D).into()])) + &vector("beta", 4 * H * D);
    let parts = uvqk.split_columns(&[H * D, H * D, H * D, H * D]);
    let u = parts[0].silu();
    let heads = |t: &Tensor| t.reshape(&[rows.total.clone(), H.into(), D.into()]);
    let (v, q, k) = (heads(&parts[1]), heads(&parts[2]), heads(&parts[3]));
    let weights = &(&q.scores(&k, rows, rows) * 0.4).silu() * 0.1;
    let mask = rows.row_index(rows, H).ge(&rows.key_index(rows, H));
    let attended = mask.select(&weights, &scope.scalar(f32, 0.0)).weighted_sum(&v, rows, rows);
    let attended = attended.reshape(&[rows.total.clone(), (H * D).into()]);
    let y = &u * &attended.layer_norm(&vector("out_w", H * D), &vector("out_b", H * D), 1e-6);
    let joined = scope.concat(&[&u, &attended, &y], 1);
    x + &joined.matmul(&scope.parameter("out", f32, &[(3 * H * D).into(), E.into()]))
}

fn stu_graph(layers: usize) -> Graph {
    let scope = Scope::new();
    let rows = scope.offsets("offsets");
    let mut x = scope.input("x", DType::F32, &[rows.total.clone(), E.into()]);
    for layer in 0..layers {
        x = scope.module(&format!("layers.{layer}"), |scope| stu_layer(scope, &x, &rows));
    }
    scope.finish(&[("y", x)]).unwrap()
}

fn noise(seed: usize, shape: &[usize]) -> HostTensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> =
        (0..count).map(|n| (((n * 2654435761 + seed * 40503) % 1000) as f32 / 500.0 - 1.0) * 0.5).collect();
    HostTensor::f32(shape.to_vec(), &values).unwrap()
}

fn parameters(graph: &Graph) -> HashMap<String, HostTensor> {
    graph
        .ids()
        .filter_map(|id| {
            let node = graph.node(id)?;
            let parameter = node.op.downcast_ref::<rewire_graph::op::Parameter>()?;
            let shape: Vec<usize> = parameter.ty.shape.iter().map(|dim| dim.as_const().unwrap()).collect();
            Some((parameter.name.clone(), noise(id.number(), &shape)))
        })
        .collect()
}

#[test]
fn an_stu_layer_takes_four_dispatches() {
    let (graph, _) = optimize(stu_graph(1)).unwrap();
    let plan = lower(&graph).unwrap();
    let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["layer_norm", "addmm", "attention", "layer_norm_addmm"], "{}", graph.text());
}

#[test]
fn the_fused_graph_computes_the_same() {
    let graph = stu_graph(2);
    let parameters = parameters(&graph);
    let (fused, _) = optimize(graph.clone()).unwrap();
    let inputs = HashMap::from([
        ("offsets".to_owned(), HostTensor::lengths(&[0, 3, 3, 8])),
        ("x".to_owned(), noise(7, &[8, E])),
    ]);
    let expected = interpret(&graph, &inputs, &parameters).unwrap()["y"].to_f64();
    let actual = interpret(&fused, &inputs, &parameters).unwrap()["y"].to_f64();
    assert_eq!(expected, actual);
}
