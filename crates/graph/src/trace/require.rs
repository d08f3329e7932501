use super::{Ragged, Tensor};
use crate::Dim;
use crate::op::{Check, HostOp};
use std::fmt::Display;

impl Tensor {
    /// Makes it the error of the trace that `op` takes `argument` only if `expected`, unless it `holds`. The first error
    /// is the one that [`Scope::finish`](super::Scope::finish) returns.
    pub fn require(&self, op: &str, argument: &str, holds: bool, expected: impl Display, actual: impl Display) {
        if !holds {
            self.fail(op, argument, &expected.to_string(), actual);
        }
    }

    /// As [`Tensor::require`]: that this, the operand `argument` of `op`, has the extents `shape`.
    pub fn require_shape(&self, op: &str, argument: &str, shape: &[Dim]) {
        if self.shape() != shape {
            let extents: Vec<String> = shape.iter().map(Dim::to_string).collect();
            self.fail(op, argument, &format!("[{}]", extents.join(", ")), self.ty());
        }
    }

    /// These values of the shape program; a run fails where one of them is above that of `bound`. `argument` is what
    /// the error calls them.
    pub fn at_most(&self, bound: &Tensor, argument: &str) -> Tensor {
        self.checked(Check::AtMost, argument, &[bound])
    }

    /// These values of the shape program; a run fails where one of them is negative, or above what 32 bits count.
    /// `argument` is what the error calls them.
    pub fn counts(&self, argument: &str) -> Tensor {
        self.checked(Check::Counts, argument, &[])
    }

    /// These values of the shape program; a run fails where the check does not hold of them and `others`.
    pub(super) fn checked(&self, check: Check, argument: &str, others: &[&Tensor]) -> Tensor {
        self.host(HostOp::Check { check, argument: argument.to_owned() }, others)
    }
}

impl Ragged {
    /// As [`Tensor::require`]: that this, the operand `argument` of `op`, divides rows among `batch` samples.
    pub fn require_batch(&self, op: &str, argument: &str, batch: &Dim) {
        let expected = format!("of batch size {batch}");
        self.lengths.require(op, argument, self.batch == *batch, expected, &self.batch);
    }
}
