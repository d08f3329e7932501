use crate::rules::{Attempt, Rule};
use rewire_graph::op::{Concat, Reshape, Slice};
use rewire_graph::{Dim, Graph, GraphError, NodeId, Value};

/// Replaces concatenations of neighbouring parts of a value by that value.
pub(super) struct JoinParts;

impl Rule for JoinParts {
    fn name(&self) -> &str {
        "join_parts"
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["concat".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some(joined) = Joined::of(graph, root) else { return Ok(Attempt::Nothing) };
        Attempt::replace(graph, root, &[joined.whole], |_, whole| {
            let run = whole.first()?.slice(joined.run.axis, joined.run.start, joined.run.len);
            Some(match joined.layout {
                Arrangement::Same => run,
                Arrangement::Reshaped(shape) => run.reshape(&shape),
                Arrangement::Permuted => run.permute(&[1, 0, 2]),
            })
        })
    }
}

/// The layout of concatenated parts, relative to the merged value that they are slices of.
enum Arrangement {
    Same,
    /// Columns of rows, stacked.
    Reshaped(Vec<Dim>),
    /// Entries, stacked between rows and columns.
    Permuted,
}

/// The neighbouring parts that a concatenation joins.
struct Joined {
    whole: Value,
    run: Slice,
    layout: Arrangement,
}

/// A slice in a concatenation, and the shape in which it is read.
struct Part {
    slice: Slice,
    whole: Value,
    shape: Vec<Dim>,
}

impl Joined {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let concat = graph.op::<Concat>(id)?;
        let parts = graph.inputs(id).into_iter().map(|value| part(graph, value)).collect::<Option<Vec<Part>>>()?;
        let [first, rest @ ..] = parts.as_slice() else { return None };
        let mut end = first.slice.start + first.slice.len;
        for part in rest {
            let follows = part.slice.start == end && part.slice.len == first.slice.len;
            if part.whole != first.whole || part.slice.axis != first.slice.axis || !follows || part.shape != first.shape
            {
                return None;
            }
            end += part.slice.len;
        }
        let (axis, rows) = (first.slice.axis, &graph.ty(first.whole)?.shape);
        let stacked = first.shape.len() == 3 && concat.axis == 1 && first.shape[1] == 1.into();
        let mut own = rows.clone();
        *own.get_mut(axis)? = first.slice.len.into();
        let layout = match rows.len() {
            _ if own == first.shape && concat.axis == axis => Arrangement::Same,
            2 if stacked && axis == 1 && first.shape[0] == rows[0] => {
                Arrangement::Reshaped(vec![rows[0].clone(), parts.len().into(), first.slice.len.into()])
            }
            3 if stacked && axis == 0 && first.slice.len == 1 && first.shape[0] == rows[1] => Arrangement::Permuted,
            _ => return None,
        };
        let run = Slice { axis, start: first.slice.start, len: end - first.slice.start };
        Some(Self { whole: first.whole, run, layout })
    }
}

/// The slice under a value, looking through reshapes.
fn part(graph: &Graph, value: Value) -> Option<Part> {
    let shape = graph.ty(value)?.shape.clone();
    let mut at = value;
    loop {
        let source = *graph.inputs(at.node).first()?;
        if let Some(slice) = graph.op::<Slice>(at.node) {
            return Some(Part { slice: slice.clone(), whole: source, shape });
        }
        graph.op::<Reshape>(at.node)?;
        at = source;
    }
}
