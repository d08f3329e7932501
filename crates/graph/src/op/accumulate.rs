use super::{Elements, ReduceOp, ScoreKind};
use crate::pointwise::ExprId;
use crate::{Dim, Type};

/// The range of a reduction.
#[derive(Clone, Debug, PartialEq)]
pub enum Span {
    /// Over an axis of this extent.
    Dense(Dim),
    /// Over the rows of a sample.
    Ragged {
        /// The operand that holds the offsets, `[B + 1]` on the host.
        offsets: usize,
        /// The sample, an `I32`.
        sample: ExprId,
    },
}

/// The builder to which the definition of a reduction is written.
pub trait Accumulator: Elements {
    /// Combines the elements of a loop, one per point. `factors` accepts the loop's coordinate and returns the factors
    /// of the element there.
    fn accumulate(
        &mut self,
        op: ReduceOp,
        span: Span,
        point: &[ExprId],
        factors: &mut dyn FnMut(&mut dyn Accumulator, ExprId) -> Vec<ExprId>,
    ) -> ExprId;
}

/// An operator whose results are scalar expressions of reductions over elements of its operands: a matmul, a reduction.
pub trait Accumulated {
    /// The element at `coords`, which has one coordinate per result axis.
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId;

    /// The axis of the result that is divided into samples, and the operand that holds the offsets.
    fn samples(&self) -> Option<(usize, usize)> {
        None
    }

    /// The granularity of the result, for a reduction over pairs of queries and keys.
    fn pairs(&self) -> Option<ScoreKind> {
        None
    }

    /// The operand axis that is reduced, if readers of the result may loop over it too.
    fn reduced(&self) -> Option<usize> {
        None
    }
}

/// The index of a matrix element in the batch `entry` of a matmul, to which its leading axes are broadcast.
pub(super) fn matrix(entry: &[ExprId], ty: &Type, element: [ExprId; 2]) -> Vec<ExprId> {
    let leading = ty.rank().saturating_sub(2).min(entry.len());
    entry[entry.len() - leading..].iter().copied().chain(element).collect()
}
