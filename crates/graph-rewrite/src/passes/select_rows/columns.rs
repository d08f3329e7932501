use super::read::Read;
use crate::cost::{Count, HardwareModel, Sizes};
use rewire_graph::op::{MatMul, Slice};
use rewire_graph::{Graph, GraphError, NodeId, Value};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Splits matmuls with some columns that are read at all rows and others at some rows, if computing the unread rows
/// takes longer than one more kernel.
pub(super) fn split(
    graph: &Graph,
    selections: &BTreeSet<NodeId>,
    machine: &HardwareModel,
) -> Result<Graph, GraphError> {
    let mut split = graph.clone();
    loop {
        let read = Read::of(&split, selections)?;
        let live = split.live();
        let fixed = split.fixed()?;
        let known = Known { live: &live, fixed: &fixed, read: &read };
        let Some((chain, slices)) = split.ids().find_map(|id| divided(&split, &known, machine, id)) else {
            return Ok(split);
        };
        for id in slices {
            let Some(slice) = split.op::<Slice>(id).cloned() else { continue };
            if let Some(columns) = columns(&mut split, &chain, &slice)? {
                split.replace_except(Value { node: id, port: 0 }, columns, &[]);
            }
        }
    }
}

/// What is known of a graph.
struct Known<'a> {
    live: &'a HashSet<NodeId>,
    /// Values that are the same in every run.
    fixed: &'a HashSet<NodeId>,
    read: &'a Read,
}

/// The chain of a value, and the column slices that read it: some at all rows, and some at fewer.
fn divided(
    graph: &Graph,
    known: &Known<'_>,
    machine: &HardwareModel,
    id: NodeId,
) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
    let Known { live, read, .. } = known;
    let value = Value { node: id, port: 0 };
    let slices: Vec<NodeId> = graph.users(id).into_iter().filter(|user| live.contains(user)).collect();
    let results = || slices.iter().map(|&node| Value { node, port: 0 });
    let is_divided = slices.iter().all(|&slice| graph.op::<Slice>(slice).is_some_and(|slice| slice.axis == 1))
        && results().any(|slice| read.some_rows(slice).is_some())
        && results().any(|slice| read.whole.contains(&slice))
        && graph.outputs().iter().all(|(_, output)| *output != value);
    let chain = if is_divided { chain(graph, known, id)? } else { return None };
    let some = results().filter(|slice| read.some_rows(*slice).is_some());
    let width = some.filter_map(|slice| graph.op::<Slice>(slice.node)).map(|slice| slice.len).sum();
    // This must also hold for a quarter of the assumed rows, since the latency of runs with few rows depends on the
    // number of kernels.
    let pays = machine.seconds(&columns_count(graph, *chain.last()?, width)?) > 5.0 * machine.launch;
    pays.then_some((chain, slices))
}

/// The cost of some columns of a matmul at all rows.
fn columns_count(graph: &Graph, product: NodeId, width: usize) -> Option<Count> {
    let left = graph.ty(*graph.inputs(product).first()?)?;
    let sizes = Sizes::assumed(graph);
    let elements = sizes.product(left.shape.get(..1)?).saturating_mul(width as u64);
    let depth = sizes.extent(left.shape.get(1)?);
    let (written, products) = (elements.saturating_mul(4), elements.saturating_mul(2 * depth));
    Some(Count { written, products, ..Count::default() })
}

/// The operators from a value down to its matmul, each read only by the one above.
fn chain(graph: &Graph, known: &Known<'_>, last: NodeId) -> Option<Vec<NodeId>> {
    let mut chain = vec![last];
    let shape = |node: NodeId| graph.ty(Value { node, port: 0 }).map(|ty| &ty.shape);
    if shape(last)?.len() != 2 {
        return None;
    }
    loop {
        let id = *chain.last()?;
        if graph.op::<MatMul>(id).is_some() {
            // The parts of a weight that is not fixed (in training) would not be joined again.
            let weight = graph.inputs(id).get(1)?.node;
            return known.fixed.contains(&weight).then_some(chain);
        }
        let like: Vec<NodeId> = graph.producers(id).filter(|&producer| shape(producer) == shape(last)).collect();
        let [next] = like[..] else { return None };
        let readers = graph.users(next).into_iter().filter(|user| known.live.contains(user)).count();
        let is_output = graph.outputs().iter().any(|(_, output)| output.node == next);
        if !graph.node(id)?.op.is_pointwise() || readers != 1 || is_output {
            return None;
        }
        chain.push(next);
    }
}

/// Some columns of the result of a chain.
fn columns(graph: &mut Graph, chain: &[NodeId], slice: &Slice) -> Result<Option<Value>, GraphError> {
    let mut below: Option<(NodeId, Value)> = None;
    for &id in chain.iter().rev() {
        let width = graph.ty(Value { node: id, port: 0 }).and_then(|ty| ty.shape.get(1)).cloned();
        let is_product = graph.op::<MatMul>(id).is_some();
        let mut operands = graph.inputs(id);
        for (n, operand) in operands.iter_mut().enumerate() {
            match below {
                Some((node, columns)) if operand.node == node => *operand = columns,
                _ if is_product && n == 0 => {}
                _ => {
                    if let Some(ty) = graph.ty(*operand)
                        && let Some(axis) = ty.rank().checked_sub(1)
                        && ty.shape.get(axis) == width.as_ref()
                    {
                        let path = graph.node(id).map_or_else(String::new, |node| node.path.clone());
                        let part = Slice { axis, ..slice.clone() };
                        *operand = Value { node: graph.add(Arc::new(part), &[*operand], &path)?, port: 0 };
                    }
                }
            }
        }
        if let Some(node) = graph.node(id).cloned() {
            below = Some((id, Value { node: graph.add_instead(&node, node.op.clone(), &operands)?, port: 0 }));
        }
    }
    Ok(below.map(|(_, columns)| columns))
}
