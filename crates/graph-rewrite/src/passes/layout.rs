use super::{Context, Pass};
use crate::error::RewriteError;
use rewire_graph::op::{Cast, MatMul, Op, Permute, Slice, ViewProps};
use rewire_graph::{Graph, GraphError, NodeId, Value};
use std::sync::Arc;

/// Removes layout and type changes that change nothing, merges slices of slices, and computes matmuls transposed that
/// are only read transposed.
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
            } else if let Some(factors) = transposed_product(&cleaned, id)
                && context.permits(self.name(), graph, id)
            {
                let product = swapped(&mut cleaned, id, factors).map_err(failed)?;
                cleaned.replace_except(old, product, &[]);
            }
        }
        Ok(cleaned)
    }
}

/// The operand to which a node's result is equal in type and value.
fn unchanged(graph: &Graph, id: NodeId) -> Option<Value> {
    let node = graph.node(id)?;
    let [operand] = graph.inputs(id)[..] else { return None };
    // With equal numbers of elements, none is omitted or repeated.
    let keeps = |movement: ViewProps| movement.is_ordered && (movement.is_complete || movement.is_unique);
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

/// The operands of a matmul that only this transposition reads, such as the gradient of a weight that a linear layer
/// reads transposed.
fn transposed_product(graph: &Graph, id: NodeId) -> Option<[Value; 2]> {
    let &[product] = graph.inputs(id).as_slice() else { return None };
    let is_transposed = graph.op::<Permute>(id).is_some_and(|permute| permute.axes == [1, 0]);
    let is_only = graph.users(product.node) == [id] && graph.outputs().iter().all(|(_, output)| *output != product);
    graph.op::<MatMul>(product.node).filter(|_| is_transposed && is_only)?;
    graph.inputs(product.node).try_into().ok()
}

/// The matmul of both operands transposed, the right one first.
fn swapped(graph: &mut Graph, id: NodeId, [left, right]: [Value; 2]) -> Result<Value, GraphError> {
    let path = graph.node(id).map_or_else(String::new, |node| node.path.clone());
    let mut add = |op: Arc<dyn Op>, operands: &[Value]| -> Result<Value, GraphError> {
        Ok(Value { node: graph.add(op, operands, &path)?, port: 0 })
    };
    let transposed = || Arc::new(Permute { axes: vec![1, 0] });
    let (left, right) = (add(transposed(), &[left])?, add(transposed(), &[right])?);
    add(Arc::new(MatMul), &[right, left])
}
