use super::{Graph, Node, NodeId, SizeSource, Value};
use crate::op::{Role, result_types};
use crate::{GraphError, Type};
use std::collections::HashMap;

impl Graph {
    /// Checks that the graph has no cycle and no dangling value, that every node has the types its
    /// operator infers, that names are unique and that every size has a source.
    ///
    /// # Errors
    /// [`GraphError`] names the invalid operator and its module path, or the output or size without a source.
    pub fn verify(&self) -> Result<(), GraphError> {
        self.verify_since(&Self::default())
    }

    /// [`Graph::verify`] of a graph derived from one that verifies. Nodes that both graphs share, with the same
    /// operands, are not checked again.
    ///
    /// # Errors
    /// As [`Graph::verify`].
    pub fn verify_since(&self, before: &Self) -> Result<(), GraphError> {
        let mut names: HashMap<(&'static str, &str), &Type> = HashMap::new();
        for id in self.order()? {
            let Some(node) = self.node(id) else { continue };
            let inputs = self.inputs(id);
            let types = inputs.iter().filter_map(|&value| self.ty(value)).collect::<Vec<_>>();
            if types.len() < inputs.len() {
                return Err(GraphError::Dangling {
                    node: node.op.name().to_owned(),
                    path: node.path.clone(),
                    detail: "a result its producer does not have".to_owned(),
                });
            }
            if !self.is_shared(before, id, &inputs) {
                verify_types(node, &types)?;
            }
            let kind = if node.is_root() { "input" } else { "parameter" };
            if let (Some(name), Some(ty)) = (node.op.role().name(), node.types.first())
                && names.insert((kind, name), ty).is_some()
            {
                return Err(GraphError::Shared { kind, name: name.to_owned() });
            }
        }
        for (name, value) in self.outputs() {
            if self.ty(*value).is_none() {
                let node = format!("output `{name}`");
                return Err(GraphError::Dangling { node, path: String::new(), detail: "a removed node".to_owned() });
            }
        }
        self.verify_states()?;
        self.verify_sizes()
    }

    /// Checks that every state has one type, before a run and after it.
    fn verify_states(&self) -> Result<(), GraphError> {
        for id in self.ids() {
            let Some(Role::Input(state)) = self.node(id).map(|node| node.op.role()) else { continue };
            let after = self.outputs().iter().find(|(name, _)| *name == state.name && self.states().contains(name));
            let Some(after) = after.and_then(|(_, value)| self.ty(*value)) else { continue };
            if *after != state.ty {
                let (expected, actual) = (state.ty.to_string(), after.to_string());
                return Err(GraphError::State { name: state.name.clone(), expected, actual });
            }
        }
        Ok(())
    }

    /// True if the other graph shares the node and its operands.
    fn is_shared(&self, other: &Self, id: NodeId, inputs: &[Value]) -> bool {
        self.shares(other, id)
            && other.inputs(id) == inputs
            && inputs.iter().all(|value| self.shares(other, value.node))
    }

    fn verify_sizes(&self) -> Result<(), GraphError> {
        let mut used = vec![false; self.sizes().len()];
        for id in self.ids() {
            let Some(node) = self.node(id) else { continue };
            for symbol in &node.symbols {
                match used.get_mut(symbol.0 as usize) {
                    Some(used) => *used = true,
                    None => return Err(GraphError::UnboundSize { symbol: symbol.0, name: String::new() }),
                }
            }
        }
        for (symbol, size) in self.sizes().iter().enumerate().filter(|(symbol, _)| used[*symbol]) {
            let bound = match size.source {
                SizeSource::Unbound => false,
                SizeSource::Extent { .. } => true,
                SizeSource::Total(value) | SizeSource::Scalar(value) => self.ty(value).is_some(),
            };
            if !bound {
                return Err(GraphError::UnboundSize { symbol: symbol as u32, name: size.name.clone() });
            }
        }
        Ok(())
    }
}

/// Fails if the types of a node differ from those that its operator infers.
fn verify_types(node: &Node, operands: &[&Type]) -> Result<(), GraphError> {
    let inferred = result_types(node.op.as_ref(), operands)
        .map_err(|source| GraphError::of_type(node.op.name(), &node.path, source))?;
    if inferred == node.types {
        return Ok(());
    }
    let show = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
    Err(GraphError::Mismatch {
        op: node.op.name().to_owned(),
        path: node.path.clone(),
        recorded: show(&node.types),
        inferred: show(&inferred),
    })
}
