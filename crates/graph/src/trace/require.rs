use super::{Ragged, Tensor};
use crate::Dim;
use crate::op::{Check, HostOp};
use std::fmt::Display;

impl Tensor {
    /// Unless it `holds`, records the error that the argument `argument` of `op` must be `expected`.
    /// [`Scope::finish`](super::Scope::finish) returns the first error of the trace.
    pub fn require(&self, op: &str, argument: &str, holds: bool, expected: impl Display, actual: impl Display) {
        if !holds {
            self.fail(op, argument, &expected.to_string(), actual);
        }
    }

    /// Like [`Tensor::require`]: this, the operand `argument` of `op`, must have the extents `shape`.
    pub fn require_shape(&self, op: &str, argument: &str, shape: &[Dim]) {
        if self.shape() != shape {
            let extents: Vec<String> = shape.iter().map(Dim::to_string).collect();
            self.fail(op, argument, &format!("[{}]", extents.join(", ")), self.ty());
        }
    }

    /// These host values; a run fails if one is greater than that of `bound`. `argument` names them in the error.
    pub fn at_most(&self, bound: &Tensor, argument: &str) -> Tensor {
        self.checked(Check::AtMost, argument, &[bound])
    }

    /// These host values; a run fails if one is negative or exceeds 32 bits. `argument` names them in the error.
    pub fn counts(&self, argument: &str) -> Tensor {
        self.checked(Check::Counts, argument, &[])
    }

    /// These host values; a run fails if the check of them and `others` fails.
    pub(super) fn checked(&self, check: Check, argument: &str, others: &[&Tensor]) -> Tensor {
        self.host(HostOp::Check { check, argument: argument.to_owned() }, others)
    }
}

impl Ragged {
    /// Like [`Tensor::require`]: this, the operand `argument` of `op`, must divide rows among `batch` samples.
    pub fn require_batch(&self, op: &str, argument: &str, batch: &Dim) {
        let expected = format!("of batch size {batch}");
        self.lengths.require(op, argument, self.batch == *batch, expected, &self.batch);
    }
}
