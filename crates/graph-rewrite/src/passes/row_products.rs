use super::{Context, Pass};
use crate::error::RewriteError;
use rewire_graph::op::{MatMul, Op, Permute, Reduce, ReduceOp};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Graph, GraphError, NodeId, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// Turns matmuls with one column into sums over rows, if a reader of the result loops over the row that it was computed
/// from. Cross layers with a vector then become row reductions in one kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowProducts;

impl Pass for RowProducts {
    fn name(&self) -> &str {
        "row_products"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let live = graph.live();
        let mut summed = graph.clone();
        for id in graph.order().map_err(failed)?.into_iter().filter(|id| live.contains(id)) {
            if let Some(operands) = column(&summed, id)
                && is_walked(graph, &live, id)
                && context.permits(self.name(), graph, id)
            {
                let sum = sum(&mut summed, id, operands).map_err(failed)?;
                summed.replace_except(Value { node: id, port: 0 }, sum, &[]);
            }
        }
        Ok(summed)
    }
}

/// The operands of a matmul with one column.
fn column(graph: &Graph, id: NodeId) -> Option<[Value; 2]> {
    graph.op::<MatMul>(id)?;
    let operands: [Value; 2] = graph.inputs(id).try_into().ok()?;
    let [left, right] = [graph.ty(operands[0])?, graph.ty(operands[1])?];
    (right.rank() == 2 && right.width() == Some(1) && left.width() != Some(1)).then_some(operands)
}

/// True if an operator over the left operand's points reads the result, directly or through layout changes.
fn is_walked(graph: &Graph, live: &HashSet<NodeId>, product: NodeId) -> bool {
    let shape = |id: NodeId| graph.ty(Value { node: id, port: 0 }).map(|ty| &ty.shape);
    let Some(row) = graph.inputs(product).first().and_then(|left| graph.ty(*left)) else { return false };
    let mut seen: HashSet<NodeId> = HashSet::from([product]);
    let mut stack = vec![product];
    while let Some(id) = stack.pop() {
        for user in graph.users(id).into_iter().filter(|user| live.contains(user)) {
            if graph.node(user).is_none_or(|node| node.op.elementwise().is_none()) {
                continue;
            }
            if shape(user) == Some(&row.shape) {
                return true;
            }
            if shape(user) == shape(product) && seen.insert(user) {
                stack.push(user);
            }
        }
    }
    false
}

fn sum(graph: &mut Graph, id: NodeId, [left, right]: [Value; 2]) -> Result<Value, GraphError> {
    let path = graph.node(id).map_or_else(String::new, |node| node.path.clone());
    let axis = graph.ty(left).map_or(0, |ty| ty.shape.len().saturating_sub(1));
    let mut add = |op: Arc<dyn Op>, operands: &[Value]| -> Result<Value, GraphError> {
        Ok(Value { node: graph.add(op, operands, &path)?, port: 0 })
    };
    let row = add(Arc::new(Permute { axes: vec![1, 0] }), &[right])?;
    let weighted = add(Arc::new(BinaryOp::Mul), &[left, row])?;
    add(Arc::new(Reduce { op: ReduceOp::Sum, axis }), &[weighted])
}
