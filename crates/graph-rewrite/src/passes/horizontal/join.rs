use rewire_graph::op::{Concat, Permute, Reshape, Slice};
use rewire_graph::{Dim, Graph, GraphError, NodeId, Value};
use std::sync::Arc;

/// Replaces concatenations of neighbouring parts of a value by that value.
pub(super) fn join_parts(graph: &mut Graph) -> Result<(), GraphError> {
    for id in graph.order()? {
        if let Some(joined) = join(graph, id)? {
            graph.replace_except(Value { node: id, port: 0 }, joined, &[]);
        }
    }
    Ok(())
}

/// A part in a concatenation, and the shape in which it is read.
struct Part {
    slice: Slice,
    whole: Value,
    shape: Vec<Dim>,
}

fn join(graph: &mut Graph, id: NodeId) -> Result<Option<Value>, GraphError> {
    let Some(node) = graph.node(id) else { return Ok(None) };
    let (Some(concat), path) = (node.op.downcast_ref::<Concat>().cloned(), node.path.clone()) else { return Ok(None) };
    let parts: Option<Vec<Part>> = graph.inputs(id).into_iter().map(|value| part(graph, value)).collect();
    let Some(parts) = parts else { return Ok(None) };
    let [first, rest @ ..] = parts.as_slice() else { return Ok(None) };
    let mut end = first.slice.start + first.slice.len;
    for part in rest {
        let follows = part.slice.start == end && part.slice.len == first.slice.len;
        if part.whole != first.whole || part.slice.axis != first.slice.axis || !follows || part.shape != first.shape {
            return Ok(None);
        }
        end += part.slice.len;
    }
    let (axis, rows) = (first.slice.axis, graph.ty(first.whole).map(|ty| ty.shape.clone()).unwrap_or_default());
    let one: Dim = 1.into();
    let stacked = first.shape.len() == 3 && concat.axis == 1 && first.shape[1] == one;
    let mut own = rows.clone();
    if let Some(extent) = own.get_mut(axis) {
        *extent = first.slice.len.into();
    }
    let same = own == first.shape && concat.axis == axis;
    let run = Slice { axis, start: first.slice.start, len: end - first.slice.start };
    let layout: Option<Arc<dyn rewire_graph::op::Op>> = match rows.len() {
        _ if same => None,
        // Columns of rows, stacked.
        2 if stacked && axis == 1 && first.shape[0] == rows[0] => {
            let shape = vec![rows[0].clone(), parts.len().into(), first.slice.len.into()];
            Some(Arc::new(Reshape { shape }))
        }
        // Entries, stacked between rows and columns.
        3 if stacked && axis == 0 && first.slice.len == 1 && first.shape[0] == rows[1] => {
            Some(Arc::new(Permute { axes: vec![1, 0, 2] }))
        }
        _ => return Ok(None),
    };
    let mut value = first.whole;
    if graph.ty(value).and_then(|ty| ty.extent(axis)) != Some(run.len) {
        value = Value { node: graph.add(Arc::new(run), &[value], &path)?, port: 0 };
    }
    if let Some(op) = layout {
        value = Value { node: graph.add(op, &[value], &path)?, port: 0 };
    }
    Ok(Some(value))
}

/// The slice that a value is, looking through reshapes.
fn part(graph: &Graph, value: Value) -> Option<Part> {
    let shape = graph.ty(value)?.shape.clone();
    let mut at = value;
    loop {
        let node = graph.node(at.node)?;
        let source = *graph.inputs(at.node).first()?;
        if let Some(slice) = node.op.downcast_ref::<Slice>() {
            return Some(Part { slice: slice.clone(), whole: source, shape });
        }
        node.op.downcast_ref::<Reshape>()?;
        at = source;
    }
}
