//! Converts padding, padded computation and removal of the padding to jagged computation.

mod axes;
mod convert;
mod pairs;
mod rows;

use super::{Attempt, Match, Patch, Rule};
use convert::{Conversion, Trip};
use rewire_graph::op::JaggedToPadded;
use rewire_graph::{Graph, GraphError, NodeId, Ordered, Value, reached};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Computes the rows that are kept after padding without padding them: elementwise functions, matmuls with weights, and
/// matmuls of queries and keys, which become scores. Padded keys of such a matmul are rows of zeros.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip;

impl Rule for RoundTrip {
    fn name(&self) -> &str {
        "padding and back"
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["padded_to_jagged".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some(trip) = Trip::of(graph, root) else { return Ok(Attempt::Nothing) };
        let inputs = |id: NodeId| graph.inputs(id).into_iter().map(|value| value.node);
        let below = reached([root], inputs);
        if !below.iter().any(|&id| graph.op::<JaggedToPadded>(id).is_some()) {
            return Ok(Attempt::Nothing);
        }
        let values = below.iter().flat_map(|&id| {
            let types = graph.node(id).map_or(&[][..], |node| &node.types);
            (0..).zip(types).map(move |(port, _)| Value { node: id, port })
        });
        let captures: BTreeMap<String, Value> = values.map(|value| (convert::name(value), value)).ordered_map();
        let found = Match::new(graph, vec![Value { node: root, port: 0 }], captures);
        let failure = RefCell::new(None);
        let patch = Patch::trace(&found, |r| match Conversion::new(r, &trip).result() {
            Ok(result) => vec![result],
            Err(reason) => {
                *failure.borrow_mut() = Some(reason);
                vec![]
            }
        });
        Ok(match (failure.into_inner(), patch) {
            (Some(None), _) => Attempt::Nothing,
            (Some(Some(reason)), _) => Attempt::Near(reason),
            (None, Err(error)) => Attempt::Near(error.to_string()),
            (None, Ok(patch)) => Attempt::Found(patch),
        })
    }
}
