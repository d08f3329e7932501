use crate::rules::{Attempt, Rule};
use rewire_graph::op::{Constant, Role};
use rewire_graph::{Graph, GraphError, HostTensor, Layout, NodeId, Value, interpret};
use std::collections::HashMap;
use std::sync::Arc;

/// Largest number of elements of a result that is stored in a graph.
const LIMIT: usize = 1 << 16;

/// Replaces operators on constants by their values, computed by the interpreter.
///
/// An operator stays if its result is larger than its operands.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldConstants;

impl Rule for FoldConstants {
    fn name(&self) -> &str {
        "fold_constants"
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some(tensor) = value(graph, root) else { return Ok(Attempt::Nothing) };
        Attempt::replace(graph, root, &[], |scope, _| Some(scope.constant(tensor)))
    }
}

/// The value of an operator on constants.
fn value(graph: &Graph, id: NodeId) -> Option<HostTensor> {
    let node = graph.node(id)?;
    let [ty] = node.types.as_slice() else { return None };
    let inputs = graph.inputs(id);
    let constants: Option<Vec<&Constant>> = inputs.iter().map(|value| graph.op::<Constant>(value.node)).collect();
    let constants = constants.filter(|constants| !constants.is_empty())?;
    let largest = constants.iter().map(|constant| constant.tensor.len()).max()?;
    let extents = ty.shape.iter().map(|dim| dim.as_const()).collect::<Option<Vec<usize>>>()?;
    let elements = extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))?;
    let skipped = matches!(node.op.role(), Role::Fused(_)) || ty.layout != Layout::Device;
    if skipped || elements > largest.min(LIMIT) {
        return None;
    }
    let mut alone = Graph::new();
    let mut operands = vec![];
    for constant in constants {
        let node = alone.add(Arc::new(constant.clone()), &[], "").ok()?;
        operands.push(Value { node, port: 0 });
    }
    let result = alone.add(node.op.clone(), &operands, "").ok()?;
    alone.add_output("value", Value { node: result, port: 0 }).ok()?;
    let tensor = interpret(&alone, &HashMap::new(), &HashMap::new()).ok()?.remove("value")?;
    (tensor.dtype() == ty.dtype && tensor.shape() == extents).then_some(tensor)
}
