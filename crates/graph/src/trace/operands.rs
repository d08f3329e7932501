//! Checks of an operator's operands and sizes: they must belong to one scope.

use super::{Tensor, Trace, poison, poisoned};
use crate::op::Op;
use crate::{Dim, GraphError, Value};

/// The operand values of an operator. If operands or sizes belong to several scopes, or an operand is poisoned, returns
/// the operator's result instead.
#[track_caller]
pub(super) fn values(state: &Trace, op: &dyn Op, operands: &[&Tensor]) -> Result<Vec<Value>, Tensor> {
    let checked =
        one_scope(state, op.name(), operands).and_then(|()| own_sizes(state, op.name(), operands, &op.sizes()));
    checked.map_err(|_| poisoned(state))?;
    operands.iter().map(|operand| operand.value).collect::<Option<_>>().ok_or_else(|| poisoned(state))
}

/// Checks that all operands belong to the scope of `state`; otherwise records the error in the scopes of all operands.
#[track_caller]
pub(super) fn one_scope(state: &Trace, op: &str, operands: &[&Tensor]) -> Result<(), GraphError> {
    let is_own = |operand: &&&Tensor| operand.state.is(state);
    let Some(other) = operands.iter().find(|operand| !is_own(operand)) else { return Ok(()) };
    let own = operands.iter().find(is_own).map_or_else(|| "its scope".to_owned(), |own| own.description());
    let path = state.lock().path.clone();
    let error = GraphError::Scopes { op: op.to_owned(), path, own, other: other.description() };
    poison(state, error.clone());
    operands.iter().for_each(|operand| drop(poison(&operand.state, error.clone())));
    Err(error)
}

/// Checks that all sizes belong to the scope of `state`.
#[track_caller]
pub(super) fn own_sizes(state: &Trace, op: &str, operands: &[&Tensor], sizes: &[Dim]) -> Result<(), GraphError> {
    let Some(own) = state.lock().id else { return Ok(()) };
    let Some(size) = sizes.iter().find_map(|dim| dim.foreign(own)) else { return Ok(()) };
    let path = state.lock().path.clone();
    let error = GraphError::Scopes {
        op: op.to_owned(),
        path,
        own: operands.first().map_or_else(|| "its scope".to_owned(), |own| own.description()),
        other: format!("the size `{size}`"),
    };
    poison(state, error.clone());
    Err(error)
}

impl Tensor {
    /// True if it has these extents, which must be of the same scope.
    pub(super) fn has_shape(&self, shape: &[Dim]) -> bool {
        let own = self.state.lock().id;
        self.shape() == shape && own.is_none_or(|own| shape.iter().all(|dim| dim.foreign(own).is_none()))
    }

    /// A description for error messages.
    fn description(&self) -> String {
        let state = self.state.lock();
        let Some(node) = self.value.and_then(|value| state.graph.node(value.node)) else {
            return "a tensor after an error".to_owned();
        };
        if let Some(name) = node.op.role().name() {
            return format!("the {} `{name}`", node.op.name());
        }
        let path = if node.path.is_empty() { String::new() } else { format!(" in `{}`", node.path) };
        format!("the result of {}{path}", node.op.name())
    }
}
