use super::{Context, Pass};
use crate::error::RewriteError;
use rewire_graph::op::{Concat, Slice};
use rewire_graph::{Dim, Graph, NodeId, Value};
use std::sync::Arc;

/// Replaces slices of a concatenation by slices of its operand, as they occur in gradients of concatenations and
/// slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadParts;

impl Pass for ReadParts {
    fn name(&self) -> &str {
        "read_parts"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let mut read = graph.clone();
        for id in graph.order().map_err(failed)? {
            let Some((operand, slice)) = part(&read, id).filter(|_| context.permits(self.name(), graph, id)) else {
                continue;
            };
            let whole = read.ty(operand).and_then(|ty| ty.extent(slice.axis)) == Some(slice.len);
            let path = read.node(id).map_or_else(String::new, |node| node.path.clone());
            let value = match whole {
                true => operand,
                false => Value { node: read.add(Arc::new(slice), &[operand], &path).map_err(failed)?, port: 0 },
            };
            read.replace_except(Value { node: id, port: 0 }, value, &[]);
        }
        Ok(read)
    }
}

/// The operand of a concatenation that contains all of a slice along the same axis, and the slice of the operand.
fn part(graph: &Graph, id: NodeId) -> Option<(Value, Slice)> {
    let slice = graph.op::<Slice>(id)?;
    let joined = *graph.inputs(id).first()?;
    let node = graph.node(joined.node)?;
    let concat = node.op.downcast_ref::<Concat>().filter(|concat| concat.axis == slice.axis)?;
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
