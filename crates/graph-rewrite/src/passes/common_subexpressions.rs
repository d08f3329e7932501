use super::{Context, Pass};
use crate::lower::RewriteError;
use rewire_graph::op::Identity;
use rewire_graph::{Arrange, Graph, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Replaces equal operators with equal operands by the first of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommonSubexpressions;

impl Pass for CommonSubexpressions {
    fn name(&self) -> &str {
        "common_subexpressions"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let mut merged = graph.clone();
        let mut known: HashMap<(Identity, Vec<Value>), Value> = HashMap::new();
        for id in graph.order().map_err(|source| RewriteError::graph(self.name(), source))? {
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
            if context.permits(self.name(), &merged, id) {
                merged.replace_except(value, first, &[]);
                merged.remove(id);
            }
        }
        Ok(merged)
    }
}
