use super::Context;
use crate::error::RewriteError;
use rewire_graph::op::Identity;
use rewire_graph::{Arrange, Graph, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// The name of the rule.
pub(crate) const MERGE_EQUAL: &str = "common_subexpressions";

/// Replaces equal operators with equal operands by the first of them.
pub(crate) fn merge_equal(graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
    let mut merged = graph.clone();
    let mut known: HashMap<(Identity, Vec<Value>), Value> = HashMap::new();
    for id in graph.order().map_err(|source| RewriteError::graph(MERGE_EQUAL, source))? {
        let Some(node) = merged.node(id) else { continue };
        let op = node.op.as_ref();
        if op.role().name().is_some() || node.types.len() != 1 {
            continue;
        }
        let mut operands = merged.inputs(id);
        if op.is_commutative() {
            operands.arrange();
        }
        let key = (Identity(Arc::clone(&node.op)), operands);
        let value = Value { node: id, port: 0 };
        let Some(&first) = known.get(&key) else {
            known.insert(key, value);
            continue;
        };
        if context.permits(MERGE_EQUAL, &merged, id) {
            merged.replace_except(value, first, &[]);
            merged.remove(id);
        }
    }
    Ok(merged)
}
