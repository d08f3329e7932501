use super::{Count, Counter, Sizes};
use crate::lower::of;
use crate::plan::Kernel;
use rewire_graph::op::{
    Constant, Fused, Gather, HostOp, IndexAdd, Input, JaggedJaggedMatMul, JaggedMatMul, MatMul, Parameter, Reduce,
    ScoreReduce, Scores, SegmentReduce, WeightedSum,
};
use rewire_graph::{Graph, Layout, Node, NodeId, Type, Value};
use std::collections::HashSet;

/// Bytes of device memory that the operators of a graph read and write in one run, each computed by itself, at the sizes
/// of [`Sizes::assumed`].
///
/// A table that rows are looked up in counts with those rows, and scores, which are never stored, do not count. What is
/// computed from parameters alone is not part of a run.
pub fn traffic(graph: &Graph) -> u64 {
    let sizes = Sizes::assumed(graph);
    operators(graph, &sizes).iter().map(|(_, count)| count.bytes()).fold(0, u64::saturating_add)
}

/// Operators of a graph that a run computes on the device, each a dispatch where they are fused.
pub fn kernels(graph: &Graph) -> usize {
    each_run(graph).count()
}

/// What every operator that a run computes on the device moves and computes: a fused one as its kernel, another by itself.
pub fn operators(graph: &Graph, sizes: &Sizes) -> Vec<(NodeId, Count)> {
    let mut counter = Counter::default();
    each_run(graph).map(|id| (id, operator(graph, id, sizes, &mut counter))).collect()
}

/// Computed nodes that are not the same in every run.
fn each_run(graph: &Graph) -> impl Iterator<Item = NodeId> + '_ {
    let fixed: HashSet<NodeId> = graph.fixed().unwrap_or_default();
    graph.ids().filter(move |id| !fixed.contains(id) && graph.node(*id).is_some_and(is_computed))
}

fn is_computed(node: &Node) -> bool {
    let op = node.op.as_ref();
    op.downcast_ref::<Input>().is_none()
        && op.downcast_ref::<Parameter>().is_none()
        && op.downcast_ref::<Constant>().is_none()
        && op.downcast_ref::<HostOp>().is_none()
}

fn operator(graph: &Graph, id: NodeId, sizes: &Sizes, counter: &mut Counter<Kernel>) -> Count {
    let Some(node) = graph.node(id) else { return Count::default() };
    if let Some(kernel) = node.op.downcast_ref::<Fused>().and_then(|fused| of(fused).ok()) {
        return counter.count(kernel, sizes.clone());
    }
    let inputs = graph.inputs(id);
    let result = node.types.first();
    let looked_up = node.op.downcast_ref::<Gather>().is_some();
    let read = inputs.iter().enumerate().map(|(operand, &value)| match result {
        Some(ty) if looked_up && operand == 0 => bytes(ty, sizes),
        _ => graph.ty(value).map_or(0, |ty| bytes(ty, sizes)),
    });
    let written = node.types.iter().map(|ty| bytes(ty, sizes));
    let (products, scalar) = operations(graph, node, &inputs, sizes);
    Count {
        read: read.fold(0, u64::saturating_add),
        written: written.fold(0, u64::saturating_add),
        products,
        scalar,
        ..Count::default()
    }
}

/// Operations of products, and others, of an operator that is not fused.
fn operations(graph: &Graph, node: &Node, inputs: &[Value], sizes: &Sizes) -> (u64, u64) {
    let op = node.op.as_ref();
    let elements = |ty: &Type| sizes.product(&ty.shape);
    let operand = |n: usize| inputs.get(n).and_then(|&value| graph.ty(value));
    let results = node.types.first().map_or(0, elements);
    let width =
        |ty: Option<&Type>, axis: usize| ty.and_then(|ty| ty.shape.get(axis)).map_or(0, |dim| sizes.extent(dim));
    let double = |a: u64, b: u64| a.saturating_mul(b).saturating_mul(2);
    let pairs =
        |scores: Option<&Type>| sizes.pairs(width(scores, 2), width(scores, 3)).saturating_mul(width(scores, 1));
    if op.downcast_ref::<MatMul>().is_some() {
        let left = operand(0);
        return (double(results, width(left, left.map_or(0, |ty| ty.rank().saturating_sub(1)))), 0);
    }
    if op.downcast_ref::<JaggedMatMul>().is_some() {
        return (double(results, width(operand(0), 1)), 0);
    }
    if op.downcast_ref::<JaggedJaggedMatMul>().is_some() {
        return (double(operand(0).map_or(0, elements), width(operand(1), 1)), 0);
    }
    if op.downcast_ref::<Scores>().is_some() {
        return (double(pairs(node.types.first()), width(operand(0), 2)), 0);
    }
    if op.downcast_ref::<WeightedSum>().is_some() {
        return (double(pairs(operand(0)), width(operand(1), 2)), 0);
    }
    if op.downcast_ref::<ScoreReduce>().is_some() {
        return (0, pairs(operand(0)));
    }
    let is_sum = op.downcast_ref::<SegmentReduce>().is_some() || op.downcast_ref::<IndexAdd>().is_some();
    if is_sum || op.downcast_ref::<Reduce>().is_some() {
        return (0, operand(0).map_or(0, elements));
    }
    (0, if node.types.iter().all(|ty| ty.layout == Layout::Device && ty.dtype.is_float()) { results } else { 0 })
}

/// The bytes of a tensor in device memory.
fn bytes(ty: &Type, sizes: &Sizes) -> u64 {
    if ty.layout != Layout::Device {
        return 0;
    }
    ty.dtype.format().bytes(sizes.product(&ty.shape))
}
