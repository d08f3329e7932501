use rewire_graph::op::{Constant, Fused, Gather, HostOp, Input, Parameter};
use rewire_graph::{Graph, Layout, Node, NodeId, Type, Value};
use std::collections::HashSet;

/// The extent that every symbolic size is taken to have in predictions.
pub const NOMINAL_SIZE: i64 = 1024;

/// Bytes of device memory that the operators of a graph read and write in one run, each computed by itself, where every
/// symbolic size is [`NOMINAL_SIZE`].
///
/// A table that rows are looked up in counts with those rows, and scores, which are never stored, do not count. What is
/// computed from parameters alone is not part of a run.
pub fn traffic(graph: &Graph) -> u64 {
    each_run(graph).map(|id| node_traffic(graph, id)).fold(0, u64::saturating_add)
}

/// Operators of a graph that a run computes on the device, each a dispatch where they are fused.
pub fn kernels(graph: &Graph) -> usize {
    each_run(graph).filter(|&id| graph.node(id).is_some_and(is_computed)).count()
}

/// Nodes that are not the same in every run.
fn each_run(graph: &Graph) -> impl Iterator<Item = NodeId> + '_ {
    let fixed: HashSet<NodeId> = graph.fixed().unwrap_or_default();
    graph.ids().filter(move |id| !fixed.contains(id))
}

fn node_traffic(graph: &Graph, id: NodeId) -> u64 {
    let Some(node) = graph.node(id).filter(|node| is_computed(node)) else { return 0 };
    let read = graph.inputs(id).into_iter().enumerate().map(|(position, value)| {
        let looked_up = looked_up(node, position);
        looked_up.or_else(|| graph.ty(value).map(bytes)).unwrap_or(0)
    });
    read.chain(node.types.iter().map(bytes)).fold(0, u64::saturating_add)
}

fn is_computed(node: &Node) -> bool {
    let op = node.op.as_ref();
    op.downcast_ref::<Input>().is_none()
        && op.downcast_ref::<Parameter>().is_none()
        && op.downcast_ref::<Constant>().is_none()
        && op.downcast_ref::<HostOp>().is_none()
}

/// The bytes of the rows looked up in an operand, if it is read as a table alone.
fn looked_up(node: &Node, operand: usize) -> Option<u64> {
    if node.op.downcast_ref::<Gather>().is_some() {
        return if operand == 0 { node.types.first().map(bytes) } else { None };
    }
    let body = &node.op.downcast_ref::<Fused>()?.body;
    let source =
        body.ids().find(|&id| body.node(id).is_some_and(|n| Fused::operand(n.op.as_ref()) == Some(operand)))?;
    let table = Value { node: source, port: 0 };
    let mut sum = 0u64;
    for reader in body.users(source) {
        body.node(reader)?.op.downcast_ref::<Gather>()?;
        if body.inputs(reader).iter().skip(1).any(|&value| value == table) {
            return None;
        }
        sum = sum.saturating_add(body.ty(Value { node: reader, port: 0 }).map_or(0, bytes));
    }
    Some(sum)
}

/// The bytes of a tensor in device memory.
fn bytes(ty: &Type) -> u64 {
    if ty.layout != Layout::Device {
        return 0;
    }
    let extents = ty.shape.iter().map(|dim| dim.evaluate(|_| Some(NOMINAL_SIZE)).unwrap_or(0) as u64);
    extents.fold(ty.dtype.bytes() as u64, u64::saturating_mul)
}
