use crate::rules::{Attempt, Rule};
use rewire_graph::op::MatMul;
use rewire_graph::{Graph, GraphError, NodeId, Value};
use std::collections::HashSet;

/// Turns a matmul with one column into a row reduction, if a reader of the result loops over the elements of the
/// reduced row. Cross layers with a weight vector then become one kernel of row reductions.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowProducts;

impl Rule for RowProducts {
    fn name(&self) -> &str {
        "row_products"
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["matmul".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some(operands) = column(graph, root).filter(|_| is_walked(graph, root)) else {
            return Ok(Attempt::Nothing);
        };
        Attempt::replace(graph, root, &operands, |_, operands| {
            let [left, right] = operands else { return None };
            Some((left * &right.permute(&[1, 0])).sum(left.rank() - 1))
        })
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
fn is_walked(graph: &Graph, product: NodeId) -> bool {
    let live = graph.live();
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
