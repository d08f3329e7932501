use super::{Ragged, Tensor};
use crate::Dim;
use crate::op::{Check, HostOp};
use std::fmt::Display;

impl Tensor {
    /// Unless it `holds`, records the error that the argument `argument` of `op` must be `expected`.
    /// [`Scope::finish`](super::Scope::finish) returns the first error of the trace.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope, Tensor};
    ///
    /// /// Rows scaled by one factor each.
    /// #[track_caller]
    /// fn scaled(x: &Tensor, factors: &Tensor) -> Tensor {
    ///     x.require("scaled", "x", x.rank() == 2, "rows", x.ty());
    ///     factors.require_shape("scaled", "factors", &[x.dim(0)]);
    ///     x * factors.reshape((x.dim(0), 1))
    /// }
    ///
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, (scope.size("rows"), 8));
    /// let factors = scope.input("factors", DType::F32, [8]);
    /// let error = scope.finish(&[("y", scaled(&x, &factors))]).unwrap_err().to_string();
    /// assert!(error.ends_with(": `factors` must be [rows], got f32[8]"), "{error}");
    /// ```
    #[track_caller]
    pub fn require(&self, op: &str, argument: &str, holds: bool, expected: impl Display, actual: impl Display) {
        if !holds {
            self.fail(op, argument, &expected.to_string(), actual);
        }
    }

    /// Like [`Tensor::require`]: this, the operand `argument` of `op`, must have the extents `shape`.
    #[track_caller]
    pub fn require_shape(&self, op: &str, argument: &str, shape: &[Dim]) {
        if self.shape() != shape {
            let extents: Vec<String> = shape.iter().map(Dim::to_string).collect();
            self.fail(op, argument, &format!("[{}]", extents.join(", ")), self.ty());
        }
    }

    /// These host values; a run fails if one is greater than that of `bound`. `argument` names them in the error.
    #[track_caller]
    pub fn at_most(&self, bound: impl AsRef<Tensor>, argument: &str) -> Tensor {
        let bound = bound.as_ref();
        self.checked(Check::AtMost, argument, &[bound])
    }

    /// These host values; a run fails if one is negative or exceeds 32 bits. `argument` names them in the error.
    #[track_caller]
    pub fn counts(&self, argument: &str) -> Tensor {
        self.checked(Check::Counts, argument, &[])
    }

    /// These host values; a run fails if the check of them and `others` fails.
    #[track_caller]
    pub(super) fn checked(&self, check: Check, argument: &str, others: &[&Tensor]) -> Tensor {
        self.host(HostOp::Check { check, argument: argument.to_owned() }, others)
    }
}

impl Ragged {
    /// Like [`Tensor::require`]: this, the operand `argument` of `op`, must divide rows among `batch` samples.
    ///
    /// ```
    /// use rewire_graph::Scope;
    /// let scope = Scope::new();
    /// let rows = scope.lengths("lengths", scope.size("users"));
    /// rows.require_batch("mean_pooling", "rows", &scope.size("items"));
    /// let error = scope.finish(&[("lengths", rows.lengths)]).unwrap_err().to_string();
    /// assert!(error.starts_with("mean_pooling at ") && error.ends_with(": `rows` must be of batch size items, got users"), "{error}");
    /// ```
    #[track_caller]
    pub fn require_batch(&self, op: &str, argument: &str, batch: &Dim) {
        let expected = format!("of batch size {batch}");
        self.lengths.require(op, argument, self.batch == *batch, expected, &self.batch);
    }
}
