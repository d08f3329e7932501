use super::{Attempt, Match, Patch, Rule};
use rewire_graph::{Graph, GraphError, NodeId, Ordered, Tensor, Value};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Replaces custom operators by their decomposition, if they have one: for a target that does not support their shader,
/// or to fuse their parts.
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
        let Some(forms) = node.op.custom() else { return Ok(Attempt::Nothing) };
        let inputs = graph.inputs(root).into_iter().enumerate();
        let captures: BTreeMap<String, Value> = inputs.map(|(n, value)| (n.to_string(), value)).ordered_map();
        let count = captures.len();
        let found = Match::new(graph, vec![Value { node: root, port: 0 }], captures);
        let known = Cell::new(true);
        let patch = Patch::trace(&found, |r| {
            let operands: Vec<Tensor> = (0..count).map(|n| r.tensor(&n.to_string())).collect();
            let body = forms.decompose(r.scope(), &operands);
            known.set(body.is_some());
            body.into_iter().collect()
        })?;
        Ok(if known.get() { Attempt::Found(patch) } else { Attempt::Nothing })
    }
}
