use crate::rules::{Attempt, Rule};
use rewire_graph::op::{MatMul, Permute, Slice, ViewProps};
use rewire_graph::{Graph, GraphError, NodeId, Value};

/// Removes layout and type changes without effect, merges slices of slices, and computes the transpose directly if only
/// the transpose of a matmul is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct CleanLayout;

impl Rule for CleanLayout {
    fn name(&self) -> &str {
        "clean_layout"
    }

    fn reach(&self) -> usize {
        2
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        if let Some(same) = unchanged(graph, root) {
            Attempt::replace(graph, root, &[same], |_, same| same.first().cloned())
        } else if let Some((part, whole)) = part_of_part(graph, root) {
            Attempt::replace(graph, root, &[whole], |scope, whole| Some(scope.apply(part, &[whole.first()?])))
        } else if let Some(factors) = transposed_product(graph, root) {
            Attempt::replace(graph, root, &factors, |_, factors| {
                let [left, right] = factors else { return None };
                let [left, right] = [left, right].map(|factor| factor.permute(&[1, 0]));
                Some(right.matmul(&left))
            })
        } else {
            Ok(Attempt::Nothing)
        }
    }
}

/// The operand that equals a node's result in type and value.
fn unchanged(graph: &Graph, id: NodeId) -> Option<Value> {
    let node = graph.node(id)?;
    let [operand] = graph.inputs(id)[..] else { return None };
    // A layout change that keeps the number of elements omits and repeats none.
    let keeps = |movement: ViewProps| movement.is_ordered && (movement.is_complete || movement.is_unique);
    let keeps = node.op.movement().is_some_and(keeps) || node.op.is_conversion();
    (keeps && graph.ty(operand) == node.types.first()).then_some(operand)
}

/// A slice of a slice along the same axis as one slice.
fn part_of_part(graph: &Graph, id: NodeId) -> Option<(Slice, Value)> {
    let slice = |id: NodeId| graph.op::<Slice>(id);
    let inner = graph.inputs(id).first()?.node;
    let (outer, first) = (slice(id)?, slice(inner)?);
    let whole = *graph.inputs(inner).first()?;
    let part = Slice { axis: outer.axis, start: first.start + outer.start, len: outer.len };
    (outer.axis == first.axis).then_some((part, whole))
}

/// The operands of a matmul that only this transpose reads, such as the gradient of a weight that a linear layer reads
/// transposed.
fn transposed_product(graph: &Graph, id: NodeId) -> Option<[Value; 2]> {
    let &[product] = graph.inputs(id).as_slice() else { return None };
    let is_transposed = graph.op::<Permute>(id).is_some_and(|permute| permute.axes == [1, 0]);
    let is_only = graph.users(product.node) == [id] && graph.outputs().iter().all(|(_, output)| *output != product);
    graph.op::<MatMul>(product.node).filter(|_| is_transposed && is_only)?;
    graph.inputs(product.node).try_into().ok()
}
