use super::{Attempt, Rule};
use rewire_graph::{Graph, GraphError, NodeId};

/// Replaces custom operators by their decompositions, if any: for a target that does not support their shaders, or to
/// fuse the decomposed operators with others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decompose;

impl Rule for Decompose {
    fn name(&self) -> &str {
        "decompose"
    }

    fn roots(&self) -> Option<Vec<String>> {
        None
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some(node) = graph.node(root) else { return Ok(Attempt::Nothing) };
        Attempt::replace(graph, root, &graph.inputs(root), |scope, operands| node.op.decompose(scope, operands))
    }
}
