//! Selects the parameters that share a buffer.

use crate::plan::LARGEST_POOLED;
use crate::plan::{Computation, MemorySpace};
use rewire_graph::op::Role;
use rewire_graph::{Arrange, Graph, NodeId, Type, Value};
use std::collections::HashSet;

/// Elements of all pooled parameters together, 64 MiB as f32: half of the smallest binding that WebGPU guarantees.
const TOTAL: usize = 1 << 24;

/// The pooled values of a graph: values of `fixed` nodes that stay in memory between runs and are not constants of the
/// plan, smallest first up to the total.
pub(crate) fn pooled(graph: &Graph, fixed: &HashSet<NodeId>) -> HashSet<Value> {
    let mut candidates: Vec<(usize, Value)> = vec![];
    for id in graph.ids().filter(|id| fixed.contains(id)) {
        let Some(node) = graph.node(id) else { continue };
        if matches!(node.op.role(), Role::Parameter(_) | Role::Fused(_)) {
            let values = (0..).zip(&node.types).map(|(port, ty)| (elements(ty), Value { node: id, port }));
            candidates.extend(values.filter_map(|(elements, value)| Some((elements?, value))));
        }
    }
    candidates.retain(|(elements, _)| (1..=LARGEST_POOLED).contains(elements));
    candidates.arrange();
    let sums = candidates.iter().scan(0, |sum, (elements, _)| {
        *sum += elements;
        Some(*sum)
    });
    let count = sums.take_while(|&sum| sum <= TOTAL).count();
    candidates.into_iter().take(count).map(|(_, value)| value).collect()
}

/// Elements of a float tensor with padded rows, if its shape is constant.
fn elements(ty: &Type) -> Option<usize> {
    let extents = ty.shape.iter().map(|dim| dim.as_const()).collect::<Option<Vec<_>>>()?;
    if ty.dtype.is_float() && ty.dtype.format().is_written() { ty.dtype.format().elements(&extents) } else { None }
}

/// Marks the operands of a kernel that are pooled parameters. `values` are the values of the operands.
pub(crate) fn pool(computation: &mut Computation, values: &[Value], pooled: &HashSet<Value>) {
    for (operand, value) in computation.body_mut().operands.iter_mut().zip(values) {
        if operand.space == MemorySpace::Device && pooled.contains(value) {
            operand.space = MemorySpace::Pooled;
        }
    }
}
