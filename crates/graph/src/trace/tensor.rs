use super::state::Trace;
use super::{Axis, apply, poison, poisoned, shared};
use crate::op::{Constant, HostOp, Op};
use crate::{DType, Dim, GraphError, HostTensor, Layout, Number, Type, TypeError, Value};
use std::fmt;
use std::sync::Arc;

/// A symbolic value: a device tensor, a host value, or scores.
///
/// `Debug` shows its type, `f32[s1, 32]`.
#[derive(Clone)]
pub struct Tensor {
    pub(super) state: Trace,
    /// `None` after an error.
    pub(super) value: Option<Value>,
    pub(super) ty: Type,
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_poisoned() { f.write_str("poisoned") } else { write!(f, "{}", self.ty) }
    }
}

impl Tensor {
    /// The type.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[Dim] {
        &self.ty.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.ty.rank()
    }

    /// The extent of an axis; 0 if the axis does not exist.
    pub fn dim(&self, axis: impl Axis) -> Dim {
        axis.of(self.rank()).and_then(|axis| self.ty.shape.get(axis)).cloned().unwrap_or_default()
    }

    /// The last extent if it is a constant, else 0.
    pub fn width(&self) -> usize {
        self.ty.width().unwrap_or(0)
    }

    /// The value in the graph; `None` after an error.
    pub fn value(&self) -> Option<Value> {
        self.value
    }

    /// True if an operator that this depends on failed.
    pub fn is_poisoned(&self) -> bool {
        self.value.is_none()
    }

    /// The first error of the trace, if this depends on an operator that failed. [`Scope::finish`](super::Scope::finish)
    /// returns it as well.
    pub fn error(&self) -> Option<GraphError> {
        if self.is_poisoned() { self.state.lock().error.clone() } else { None }
    }

    /// A tensor that is part of the graph.
    #[track_caller]
    pub(crate) fn constant(&self, tensor: HostTensor) -> Tensor {
        shared(&self.state, Constant { tensor }, &[])
    }

    /// True for a host value.
    pub(super) fn is_host(&self) -> bool {
        self.ty.layout == Layout::Host
    }

    /// An operator along an axis.
    #[track_caller]
    pub(super) fn along<O: Op>(&self, op: &str, axis: impl Axis, make: impl FnOnce(usize) -> O) -> Tensor {
        match self.axis(op, axis) {
            Some(axis) => self.apply(make(axis), &[]),
            None => poisoned(&self.state),
        }
    }

    /// The position of an axis; records an error of `op` if the axis does not exist.
    #[track_caller]
    pub(super) fn axis(&self, op: &str, axis: impl Axis) -> Option<usize> {
        let (rank, found) = (self.rank(), axis.of(self.rank()).filter(|&axis| axis < self.rank()));
        self.require(op, "axis", found.is_some(), format!("from -{rank} to below {rank}"), axis);
        found
    }

    /// Adds an operator with this as its first operand.
    #[track_caller]
    pub(crate) fn apply(&self, op: impl Op, others: &[&Tensor]) -> Tensor {
        let operands: Vec<&Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
        apply(&self.state, Arc::new(op), &operands)
    }

    /// A host value.
    #[track_caller]
    pub(super) fn host(&self, op: HostOp, others: &[&Tensor]) -> Tensor {
        let operands: Vec<&Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
        shared(&self.state, op, &operands)
    }

    /// A poisoned value after an invalid argument of `op`, which is recorded as an error.
    #[track_caller]
    pub(super) fn fail(&self, op: &str, argument: &str, expected: &str, actual: impl ToString) -> Tensor {
        if self.is_poisoned() {
            return poisoned(&self.state);
        }
        let path = self.state.lock().path.clone();
        let source = TypeError::new(argument, expected, actual);
        poison(&self.state, GraphError::of_type(op, &path, source))
    }

    /// A scalar that is part of the graph.
    #[track_caller]
    pub(crate) fn scalar(&self, dtype: DType, value: impl Into<Number>) -> Tensor {
        match Constant::scalar(dtype, value) {
            Ok(constant) => shared(&self.state, constant, &[]),
            Err(error) => self.fail("constant", &error.argument, &error.expected, error.actual),
        }
    }
}
