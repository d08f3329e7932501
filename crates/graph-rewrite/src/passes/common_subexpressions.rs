use super::PassReport;
use crate::lower::RewriteError;
use rewire_graph::op::{Input, Parameter};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Graph, Value};
use std::collections::HashMap;

/// Lets readers of equal operators with equal operands read the first of them.
///
/// # Errors
/// [`RewriteError`] if the graph is not well formed.
pub fn merge_common_subexpressions(graph: &Graph) -> Result<(Graph, PassReport), RewriteError> {
    let failed = |source| RewriteError::graph("common_subexpressions", source);
    let mut merged = graph.clone();
    let mut known: HashMap<(String, String, Vec<Value>), Value> = HashMap::new();
    let mut changes = 0;
    for id in graph.order().map_err(failed)? {
        let Some(node) = merged.node(id) else { continue };
        let op = node.op.as_ref();
        if op.downcast_ref::<Input>().is_some() || op.downcast_ref::<Parameter>().is_some() || node.types.len() != 1 {
            continue;
        }
        let mut operands = merged.inputs(id);
        if op.downcast_ref::<BinaryOp>().is_some_and(|op| op.is_commutative()) {
            operands.sort_unstable();
        }
        let key = (op.name().to_owned(), op.attributes().to_string(), operands);
        let value = Value { node: id, port: 0 };
        match known.get(&key) {
            Some(&first) => {
                merged.replace_except(value, first, &[]);
                merged.remove(id);
                changes += 1;
            }
            None => {
                known.insert(key, value);
            }
        }
    }
    Ok((merged, PassReport { pass: "common_subexpressions", changes, detail: String::new() }))
}
