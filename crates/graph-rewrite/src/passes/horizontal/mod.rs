//! Horizontal fusion: operators of one kind with the same operand become one operator over all their columns.

mod family;
mod join;
mod surroundings;

use super::{Context, DeadCode, Fuse, Pass, Pipeline, Precompute, Separate};
use crate::cost::{Sizes, operators};
use crate::error::RewriteError;
use crate::rules::rewrite_beside;
use family::{Known, Members, SiblingGroup};
use join::JoinParts;
use rewire_graph::op::{Concat, MatMul, Permute};
use rewire_graph::{DType, Graph, GraphError, NodeId, Value};
use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use surroundings::Surroundings;

/// Merges linear layers with the same operand. Their weights are joined when parameters are bound, and equal operators
/// after them (biases, activations, further layers of equal widths) are merged too.
///
/// A merge is kept if the predicted time on the machine is not longer.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeSiblings;

impl Pass for MergeSiblings {
    fn name(&self) -> &str {
        "merge_siblings"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let sets = siblings(graph).map_err(failed)?;
        let mut chosen = if sets.is_empty() { vec![] } else { choose(graph, &sets, context)? };
        chosen.retain(|set| context.permits(self.name(), graph, set[0]));
        merged(graph, &chosen)
    }
}

/// Merging may predict this multiple of the time without: sizes are assumed, so small differences mean nothing, and one
/// kernel instead of several is less work at small sizes.
const EVEN: f64 = 1.01;

/// The sets of siblings whose merging does not lengthen the predicted time of their surroundings.
fn choose(graph: &Graph, sets: &[Vec<NodeId>], context: &Context) -> Result<Vec<Vec<NodeId>>, RewriteError> {
    let failed = |source| RewriteError::graph("merge_siblings", source);
    let (surroundings, sizes) = (Surroundings::new(graph).map_err(failed)?, Sizes::assumed(graph));
    let mut chosen: Vec<Vec<NodeId>> = vec![];
    for set in sets {
        let region = surroundings.of(set).map_err(failed)?;
        let mut members = region.members(&chosen);
        let time = |members: &[Vec<NodeId>]| seconds(merged(&region.part.graph, members)?, &sizes, context);
        let before = time(&members)?;
        let own = region.members(slice::from_ref(set));
        debug_assert_eq!(own.len(), 1, "the region contains the siblings that it surrounds");
        members.extend(own);
        if time(&members)? <= before * EVEN {
            chosen.push(set.clone());
        }
    }
    Ok(chosen)
}

/// The predicted time of a run of the graph after fusion.
fn seconds(graph: Graph, sizes: &Sizes, context: &Context) -> Result<f64, RewriteError> {
    let rest = Pipeline::new(vec![Box::new(Separate), Box::new(DeadCode), Box::new(Precompute), Box::new(Fuse)]);
    let (fused, _) = rest.run_within(graph, context.within())?;
    let counts = operators(&fused, sizes)?;
    Ok(counts.iter().map(|(_, count)| context.machine().serial_seconds(count)).sum())
}

/// Matmuls with the same left operand and parameters of one type as right operands, oldest first.
fn siblings(graph: &Graph) -> Result<Vec<Vec<NodeId>>, GraphError> {
    let Known { fixed, unread } = Known::of(graph)?;
    let mut sets: BTreeMap<(Value, DType), Vec<NodeId>> = BTreeMap::new();
    for id in graph.ids().filter(|id| !unread.contains(id) && !fixed.contains(id)) {
        let is_product = graph.op::<MatMul>(id).is_some();
        let [left, right] = graph.inputs(id)[..] else { continue };
        let Some(ty) = graph.ty(right).filter(|ty| is_product && ty.rank() == 2) else { continue };
        if fixed.contains(&right.node) && ty.width().is_some_and(|width| width > 0) {
            sets.entry((left, ty.dtype)).or_default().push(id);
        }
    }
    Ok(sets.into_values().filter(|set| set.len() > 1).collect())
}

/// The graph with every set of siblings merged.
fn merged(graph: &Graph, sets: &[Vec<NodeId>]) -> Result<Graph, RewriteError> {
    let mut merged = graph.clone();
    if sets.is_empty() {
        return Ok(merged);
    }
    let failed = |source| RewriteError::graph("merge_siblings", source);
    let known = Known::of(graph).map_err(failed)?;
    for set in sets {
        merge(&mut merged, &known, set).map_err(failed)?;
    }
    rewrite_beside(&merged, &[&JoinParts], &mut Context::new())
}

fn merge(graph: &mut Graph, known: &Known, set: &[NodeId]) -> Result<(), GraphError> {
    let [first, ..] = set else { return Ok(()) };
    let path = graph.node(*first).map_or_else(String::new, |node| node.path.clone());
    let weights: Vec<Value> = set.iter().filter_map(|&id| graph.inputs(id).get(1).copied()).collect();
    let Some(&left) = graph.inputs(*first).first() else { return Ok(()) };
    let widths: Vec<usize> = weights.iter().filter_map(|weight| graph.ty(*weight)?.width()).collect();
    debug_assert_eq!(widths.len(), set.len(), "siblings have matrices as right operands");
    let parts: Vec<(Value, usize)> = set.iter().map(|&node| Value { node, port: 0 }).zip(widths).collect();
    let joined = join(graph, &weights, &path)?;
    let product = graph.add(Arc::new(MatMul), &[left, joined], &path)?;
    let mut waiting = vec![SiblingGroup::new(Value { node: product, port: 0 }, Members::Columns, parts)];
    while let Some(family) = waiting.pop() {
        waiting.extend(family.spread(graph, known)?);
    }
    Ok(())
}

/// The columns of all matrices. Transposed matrices keep their layout in memory.
fn join(graph: &mut Graph, weights: &[Value], path: &str) -> Result<Value, GraphError> {
    let source = |weight: &Value| {
        let is_transposed = graph.op::<Permute>(weight.node).is_some_and(|permute| permute.axes == [1, 0]);
        graph.inputs(weight.node).first().copied().filter(|_| is_transposed)
    };
    let of = |node: NodeId| Value { node, port: 0 };
    match weights.iter().map(source).collect::<Option<Vec<Value>>>() {
        Some(sources) => {
            let joined = graph.add(Arc::new(Concat { axis: 0 }), &sources, path)?;
            graph.add(Arc::new(Permute { axes: vec![1, 0] }), &[of(joined)], path).map(of)
        }
        None => graph.add(Arc::new(Concat { axis: 1 }), weights, path).map(of),
    }
}
