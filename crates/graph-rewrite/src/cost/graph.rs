use super::{Counter, loops};
use crate::count::{Count, Sizes};
use crate::error::RewriteError;
use crate::lower::{of, unsupported};
use crate::plan::Computation;
use rewire_graph::op::{Fused, Role};
use rewire_graph::{Graph, Layout, Node, NodeId, Type};

/// Bytes of device memory that the operators of a graph read and write in one run, if each is computed separately, at
/// the sizes of [`Sizes::assumed`].
///
/// A table counts only the rows that are looked up. Scores do not count, since they are never stored, nor do values
/// computed only from parameters.
///
/// # Errors
/// As [`operators`].
pub fn traffic(graph: &Graph) -> Result<u64, RewriteError> {
    let counts = operators(graph, &Sizes::assumed(graph))?;
    Ok(counts.iter().map(|(_, count)| count.bytes()).fold(0, u64::saturating_add))
}

/// Number of operators that a run computes on the device. After fusion each is one dispatch.
///
/// # Errors
/// If the graph has a cycle.
pub fn kernels(graph: &Graph) -> Result<usize, RewriteError> {
    Ok(each_run(graph)?.count())
}

/// The count of every operator that a run computes on the device: fused operators as their kernels, others separately.
///
/// # Errors
/// If the graph has a cycle, or a fused operator that no kernel computes.
pub fn operators(graph: &Graph, sizes: &Sizes) -> Result<Vec<(NodeId, Count)>, RewriteError> {
    let mut counter = Counter::default();
    each_run(graph)?.map(|(id, node)| Ok((id, operator(graph, (id, node), sizes, &mut counter)?))).collect()
}

/// Computed nodes that may differ between runs.
fn each_run(graph: &Graph) -> Result<impl Iterator<Item = (NodeId, &Node)>, RewriteError> {
    let fixed = graph.fixed().map_err(|source| RewriteError::graph("cost", source))?;
    let nodes = graph.ids().filter_map(|id| Some((id, graph.node(id)?)));
    Ok(nodes.filter(move |(id, node)| !fixed.contains(id) && is_computed(node)))
}

fn is_computed(node: &Node) -> bool {
    matches!(node.op.role(), Role::Fused(_) | Role::Computed)
}

fn operator(
    graph: &Graph,
    (id, node): (NodeId, &Node),
    sizes: &Sizes,
    counter: &mut Counter<Computation>,
) -> Result<Count, RewriteError> {
    if let Some(fused) = graph.op::<Fused>(id) {
        let kernel = of(fused).map_err(|reason| unsupported(node, &reason.to_string()))?;
        return Ok(counter.count(kernel, sizes.clone()));
    }
    let operands: Vec<&Type> = graph.inputs(id).into_iter().filter_map(|value| graph.ty(value)).collect();
    let result = node.types.first();
    let is_lookup = node.op.is_lookup();
    let read = operands.iter().enumerate().map(|(operand, &ty)| match result {
        Some(looked_up) if is_lookup && operand == 0 => bytes(looked_up, sizes),
        _ => bytes(ty, sizes),
    });
    let read = read.fold(0, u64::saturating_add);
    let written = node.types.iter().map(|ty| bytes(ty, sizes)).fold(0, u64::saturating_add);
    let is_float = node.types.iter().all(|ty| ty.layout == Layout::Device && ty.dtype.is_float());
    let (products, scalar) = match (node.op.accumulated(), result) {
        (Some(sum), Some(result)) => loops::operations(sum, &operands, result, sizes),
        (None, Some(result)) if is_float => (0, sizes.product(&result.shape)),
        _ => (0, 0),
    };
    Ok(Count { read, written, products, scalar, ..Count::default() })
}

/// The bytes of a tensor in device memory.
pub(crate) fn bytes(ty: &Type, sizes: &Sizes) -> u64 {
    if ty.layout != Layout::Device {
        return 0;
    }
    ty.dtype.format().bytes(sizes.product(&ty.shape))
}
