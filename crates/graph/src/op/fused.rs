use super::{Input, Op, Role};
use crate::nest::Nest;
use crate::{Dim, Graph, GraphError, Type, TypeError};
use serde_json::{Value, json};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Operators that one kernel computes. The body defines the result, operator by operator.
///
/// Operands of the body are inputs named `0`, `1`, ... Sizes in the body are those of the graph around it.
#[derive(Clone, Debug)]
pub struct Fused {
    /// The main operator with the operators fused into it: `addmm`, `attention`, `layer_norm`, `pointwise`.
    pub name: String,
    /// The operators.
    pub body: Graph,
    /// The loop nest that computes the body, result `n` into output `n`; `None` for a custom operator.
    pub nest: Option<Arc<Nest>>,
}

impl Fused {
    /// The position of the operand, if this node of a body is one.
    pub fn operand(op: &dyn Op) -> Option<usize> {
        match op.role() {
            Role::Input(input) => input.name.parse().ok(),
            _ => None,
        }
    }

    /// Adds operand `position` to a body.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn add_operand(body: &mut Graph, position: usize, ty: Type) -> Result<crate::Value, GraphError> {
        let node = body.add(Arc::new(Input { name: position.to_string(), ty }), &[], "")?;
        Ok(crate::Value { node, port: 0 })
    }
}

impl PartialEq for Fused {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.body.same(&other.body)
    }
}

impl Hash for Fused {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.body.len()).hash(state);
    }
}

impl Op for Fused {
    fn name(&self) -> &str {
        &self.name
    }

    fn attributes(&self) -> Value {
        json!({ "body": self.body.text() })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        for id in self.body.ids() {
            let Some(node) = self.body.node(id) else { continue };
            let (Some(position), Some(expected)) = (Self::operand(node.op.as_ref()), node.types.first()) else {
                continue;
            };
            match inputs.get(position) {
                Some(&actual) if actual == expected => {}
                Some(actual) => {
                    return Err(TypeError::new(format!("operand {position}"), expected.to_string(), actual));
                }
                None => return Err(TypeError::new(format!("operand {position}"), expected.to_string(), "nothing")),
            }
        }
        Ok(self.body.outputs().iter().filter_map(|(_, value)| self.body.ty(*value).cloned()).collect())
    }

    fn sizes(&self) -> Vec<Dim> {
        self.body
            .ids()
            .filter_map(|id| self.body.node(id))
            .flat_map(|node| node.types.iter().flat_map(|ty| ty.shape.clone()).chain(node.op.sizes()))
            .collect()
    }
}
