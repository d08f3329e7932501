use crate::rules::{Attempt, Rule};
use rewire_graph::op::{Concat, Slice};
use rewire_graph::{Dim, Graph, GraphError, NodeId, Value};

/// Replaces a slice of a concatenation by a slice of one of its operands. Gradients of concatenations and slices
/// contain such slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadParts;

impl Rule for ReadParts {
    fn name(&self) -> &str {
        "read_parts"
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["slice".to_owned()])
    }

    fn reach(&self) -> usize {
        2
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some((operand, part)) = part(graph, root) else { return Ok(Attempt::Nothing) };
        Attempt::replace(graph, root, &[operand], |_, x| Some(x.first()?.slice(part.axis, part.start, part.len)))
    }
}

/// The operand of a concatenation that contains the whole slice along the same axis, and the corresponding slice of the
/// operand.
fn part(graph: &Graph, id: NodeId) -> Option<(Value, Slice)> {
    let slice = graph.op::<Slice>(id)?;
    let joined = *graph.inputs(id).first()?;
    let node = graph.node(joined.node)?;
    let concat = graph.op::<Concat>(joined.node).filter(|concat| concat.axis == slice.axis)?;
    let mut start = 0;
    for operand in graph.inputs(joined.node) {
        let ty = graph.ty(operand)?;
        let end = start + ty.shape.get(concat.axis).and_then(Dim::as_const)?;
        if (start..end).contains(&slice.start) {
            let fits = slice.start + slice.len <= end && Some(ty.dtype) == node.types.first().map(|ty| ty.dtype);
            return fits.then(|| (operand, Slice { start: slice.start - start, ..slice.clone() }));
        }
        start = end;
    }
    None
}
