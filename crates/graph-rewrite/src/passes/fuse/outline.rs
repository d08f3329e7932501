use super::partition::Partition;
use crate::lower::RewriteError;
use rewire_graph::op::{Fused, JaggedMatMul, MatMul, Reduce, ReduceOp, WeightedSum};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{Graph, GraphError, NodeId, SizeSource, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The graph with one fused operator for every group.
pub(super) fn outline(partition: &Partition) -> Result<Graph, RewriteError> {
    let failed = |source: GraphError| RewriteError::graph("fuse", source);
    let graph = partition.graph;
    let mut fused = Graph::new();
    for size in graph.sizes() {
        fused.add_size(&size.name, size.source.clone());
    }
    let mut moved: HashMap<Value, Value> = HashMap::new();
    for &id in &partition.order {
        if partition.is_leaf(id) {
            let Some(node) = graph.node(id) else { continue };
            let inputs = read(&moved, partition.inputs(id)).map_err(failed)?;
            let copy = fused.add(node.op.clone(), &inputs, &node.path).map_err(failed)?;
            moved.insert(Value { node: id, port: 0 }, Value { node: copy, port: 0 });
        }
    }
    let mut waiting: Vec<&BTreeSet<NodeId>> = partition.groups.iter().filter(|nodes| !nodes.is_empty()).collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut rest = vec![];
        for nodes in waiting {
            let results = partition.results(nodes);
            let (body, operands) = partition.body(nodes, &results).map_err(failed)?;
            let Ok(inputs) = read(&moved, &operands) else {
                rest.push(nodes);
                continue;
            };
            let (name, path) = (name(&body), path(graph, nodes));
            let copy = fused.add(Arc::new(Fused { name, body }), &inputs, &path).map_err(failed)?;
            for (port, id) in results.into_iter().enumerate() {
                moved.insert(Value { node: id, port: 0 }, Value { node: copy, port: port as u32 });
            }
        }
        if rest.len() == before {
            return Err(failed(GraphError::Cycle { node: "a fused operator".to_owned() }));
        }
        waiting = rest;
    }
    for (name, value) in graph.outputs() {
        let value = read(&moved, &[*value]).map_err(failed)?;
        fused.add_output(name, value[0]).map_err(failed)?;
    }
    rebind_sizes(&mut fused, &moved);
    Ok(fused)
}

fn read(moved: &HashMap<Value, Value>, values: &[Value]) -> Result<Vec<Value>, GraphError> {
    values
        .iter()
        .map(|value| {
            moved.get(value).copied().ok_or_else(|| GraphError::Dangling {
                node: "a fused operator".to_owned(),
                path: String::new(),
                detail: format!("node {}", value.node.number()),
            })
        })
        .collect()
}

fn rebind_sizes(fused: &mut Graph, moved: &HashMap<Value, Value>) {
    fused.map_size_sources(|source| match source {
        SizeSource::Total(value) => moved.get(&value).map_or(SizeSource::Unbound, |&value| SizeSource::Total(value)),
        SizeSource::Scalar(value) => moved.get(&value).map_or(SizeSource::Unbound, |&value| SizeSource::Scalar(value)),
        other => other,
    });
}

/// The name of a kernel: what its anchor is usually called.
fn name(body: &Graph) -> String {
    let count = |test: &dyn Fn(&dyn rewire_graph::op::Op) -> bool| {
        body.ids().filter(|&id| body.node(id).is_some_and(|node| test(node.op.as_ref()))).count()
    };
    let unary = |wanted: UnaryOp| count(&|op| op.downcast_ref::<UnaryOp>() == Some(&wanted)) > 0;
    let product = count(&|op| op.downcast_ref::<MatMul>().is_some()) > 0;
    let reductions =
        |wanted: ReduceOp| count(&|op| op.downcast_ref::<Reduce>().is_some_and(|reduce| reduce.op == wanted));
    let norm = if reductions(ReduceOp::Max) > 0 && unary(UnaryOp::Exp) {
        Some("softmax")
    } else if reductions(ReduceOp::Sum) >= 2 && unary(UnaryOp::Rsqrt) {
        Some("layer_norm")
    } else if reductions(ReduceOp::Sum) == 1 && unary(UnaryOp::Rsqrt) {
        Some("rms_norm")
    } else if count(&|op| op.downcast_ref::<Reduce>().is_some()) > 0 {
        Some("reduce")
    } else {
        None
    };
    let anchor = if count(&|op| op.downcast_ref::<WeightedSum>().is_some()) > 0 {
        Some("attention")
    } else if count(&|op| op.downcast_ref::<JaggedMatMul>().is_some()) > 0 {
        Some("jagged_addmm")
    } else if product && count(&|op| op.downcast_ref::<BinaryOp>() == Some(&BinaryOp::Add)) > 0 {
        Some("addmm")
    } else if product {
        Some("matmul")
    } else {
        None
    };
    match (norm, anchor) {
        (Some(norm), Some(anchor)) => format!("{norm}_{anchor}"),
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (None, None) => "pointwise".to_owned(),
    }
}

/// The module of the first anchor, or the longest path that all nodes share.
fn path(graph: &Graph, nodes: &BTreeSet<NodeId>) -> String {
    let anchor = nodes.iter().find(|&&id| graph.node(id).is_some_and(|node| node.op.elementwise().is_none()));
    let chosen = anchor.or_else(|| nodes.first());
    chosen.and_then(|&id| graph.node(id)).map_or_else(String::new, |node| node.path.clone())
}
