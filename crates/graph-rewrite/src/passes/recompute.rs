use super::{Context, Pass};
use crate::error::RewriteError;
use crate::recompute::Timeline;
use rewire_graph::op::Fused;
use rewire_graph::{Graph, NodeId, Value};
use std::collections::HashSet;

/// Repeats kernels whose results are marked for [recomputation](rewire_graph::Tensor::recompute): they run twice,
/// before and after the largest gap between the uses of their results, which is the gap between the forward and the
/// backward pass.
///
/// The repeated kernels have the same operands, so results are identical to the bit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recompute;

impl Pass for Recompute {
    fn name(&self) -> &str {
        "recompute"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let asked: HashSet<NodeId> = graph.ids().filter(|&id| is_asked(graph, id)).collect();
        if asked.is_empty() {
            return Ok(graph.clone());
        }
        let mut timeline = Timeline::of(graph)?;
        // The operands of a repeated kernel are kept until it runs again, unless they are recomputed too.
        for step in (0..timeline.len()).rev() {
            let node = timeline.node(step);
            if let Some(at) = timeline.gap(step).filter(|_| asked.contains(&node))
                && context.permits(self.name(), graph, node)
            {
                timeline.repeat(&[step], step, at);
            }
        }
        timeline.graph(graph).map_err(|source| RewriteError::graph(self.name(), source))
    }
}

/// True for kernels with a result that is marked for recomputation.
fn is_asked(graph: &Graph, id: NodeId) -> bool {
    let Some(fused) = graph.op::<Fused>(id) else { return false };
    fused.body.outputs().iter().any(|(_, value)| is_recomputed(&fused.body, *value))
}

/// True for values marked for recomputation, and for slices and other layouts of them.
fn is_recomputed(body: &Graph, mut value: Value) -> bool {
    loop {
        let Some(node) = body.node(value.node) else { return false };
        match body.inputs(value.node)[..] {
            _ if node.is_recomputed => return true,
            [only] if node.op.movement().is_some() => value = only,
            _ => return false,
        }
    }
}
