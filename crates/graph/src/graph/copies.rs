use super::{Graph, NodeId, Value};
use crate::GraphError;
use std::collections::HashMap;

/// Maps values of one graph to their copies in another.
#[derive(Clone, Debug, Default)]
pub struct Copies(HashMap<Value, Value>);

impl Copies {
    /// The copy of a value.
    pub fn get(&self, value: Value) -> Option<Value> {
        self.0.get(&value).copied()
    }

    /// The copies of values.
    ///
    /// # Errors
    /// [`GraphError::Dangling`] if a value has no copy.
    pub fn find(&self, values: &[Value]) -> Result<Vec<Value>, GraphError> {
        let dangling = |value: Value| GraphError::Dangling {
            node: "a copied operator".to_owned(),
            path: String::new(),
            detail: format!("node {}", value.node.number()),
        };
        values.iter().map(|&value| self.get(value).ok_or_else(|| dangling(value))).collect()
    }

    /// Maps a value to its copy.
    pub fn insert(&mut self, value: Value, copy: Value) {
        self.0.insert(value, copy);
    }

    /// Copies an operator of `from` to `to` if all its operands have copies.
    ///
    /// # Errors
    /// As [`Graph::add_copy`].
    pub fn add(&mut self, from: &Graph, id: NodeId, to: &mut Graph) -> Result<(), GraphError> {
        let inputs = self.find(&from.inputs(id))?;
        let copy = to.add_copy(from, id, &inputs)?;
        let ports = 0..from.node(id).map_or(0, |node| node.types.len() as u32);
        self.0.extend(ports.map(|port| (Value { node: id, port }, Value { node: copy, port })));
        Ok(())
    }
}
