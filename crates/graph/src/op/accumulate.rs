use super::{Elements, ReduceOp, ScoreKind};
use crate::pointwise::ExprId;
use crate::{Dim, Type};

/// How far a sum runs.
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

/// Where the definition of an operator that combines elements is written to.
pub trait Accumulator: Elements {
    /// The elements of a loop combined, of which there is one a `point`. `factors`, given the loop's coordinate, returns what
    /// is multiplied to make the element there.
    fn accumulate(
        &mut self,
        op: ReduceOp,
        span: Span,
        point: &[ExprId],
        factors: &mut dyn FnMut(&mut dyn Accumulator, ExprId) -> Vec<ExprId>,
    ) -> ExprId;
}

/// An operator whose result at some coordinates is a scalar expression of elements of its operands that are combined over
/// loops: a product, a reduction.
pub trait Accumulated {
    /// The element at `coords`, one an axis of the result.
    fn element(&self, at: &mut dyn Accumulator, coords: &[ExprId]) -> ExprId;

    /// The axis of the result that is divided into samples, and the operand that holds the offsets.
    fn samples(&self) -> Option<(usize, usize)> {
        None
    }

    /// What it has a result of, for a sum over the pairs of queries and keys.
    fn pairs(&self) -> Option<ScoreKind> {
        None
    }

    /// The axis of the operand that is combined, where what reads the result may walk over it as well.
    fn reduced(&self) -> Option<usize> {
        None
    }
}

/// The index of an element of a matrix in the entry of a product, to which its leading axes are broadcast.
pub(super) fn matrix(entry: &[ExprId], ty: &Type, element: [ExprId; 2]) -> Vec<ExprId> {
    let leading = ty.rank().saturating_sub(2).min(entry.len());
    entry[entry.len() - leading..].iter().copied().chain(element).collect()
}
