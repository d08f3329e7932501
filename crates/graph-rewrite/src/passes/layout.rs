use super::{Context, Pass};
use crate::lower::RewriteError;
use rewire_graph::op::{Cast, Movement, Slice};
use rewire_graph::{Graph, NodeId, Value};
use std::sync::Arc;

/// Removes changes of layout and type that change nothing, and merges parts of parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct CleanLayout;

impl Pass for CleanLayout {
    fn name(&self) -> &str {
        "clean_layout"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let live = graph.live();
        let mut cleaned = graph.clone();
        for id in graph.order().map_err(failed)?.into_iter().filter(|id| live.contains(id)) {
            let old = Value { node: id, port: 0 };
            if let Some(same) = unchanged(&cleaned, id) {
                if context.permits(self.name(), graph, id) {
                    cleaned.replace_except(old, same, &[]);
                }
            } else if let Some((part, whole)) = part_of_part(&cleaned, id)
                && context.permits(self.name(), graph, id)
            {
                let path = cleaned.node(id).map_or_else(String::new, |node| node.path.clone());
                let node = cleaned.add(Arc::new(part), &[whole], &path).map_err(failed)?;
                cleaned.replace_except(old, Value { node, port: 0 }, &[]);
            }
        }
        Ok(cleaned)
    }
}

/// The operand that the result of a node equals in type and value.
fn unchanged(graph: &Graph, id: NodeId) -> Option<Value> {
    let node = graph.node(id)?;
    let [operand] = graph.inputs(id)[..] else { return None };
    // Of as many elements, none is left out or repeated.
    let keeps = |movement: Movement| movement.is_ordered && (movement.is_complete || movement.is_unique);
    let keeps = node.op.movement().is_some_and(keeps) || node.op.downcast_ref::<Cast>().is_some();
    (keeps && graph.ty(operand) == node.types.first()).then_some(operand)
}

/// A slice of a slice along the same axis as one.
fn part_of_part(graph: &Graph, id: NodeId) -> Option<(Slice, Value)> {
    let slice = |id: NodeId| graph.op::<Slice>(id);
    let inner = graph.inputs(id).first()?.node;
    let (outer, first) = (slice(id)?, slice(inner)?);
    let whole = *graph.inputs(inner).first()?;
    let part = Slice { axis: outer.axis, start: first.start + outer.start, len: outer.len };
    (outer.axis == first.axis).then_some((part, whole))
}
