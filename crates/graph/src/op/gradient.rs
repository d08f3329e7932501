use super::ScoreKind;
use crate::op::ReduceOp;
use crate::pointwise::{Algebra, BinaryOp, UnaryOp};
use crate::trace::{Ragged, Tensor};
use crate::{DType, Dim, Layout, Scalar};

/// The inputs of an operator's derivative: traced values of one scope.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    /// The operands.
    pub operands: &'a [Tensor],
    /// The result.
    pub result: &'a Tensor,
    /// The gradient of the result, of its shape.
    pub of: &'a Tensor,
    /// The offsets of rows and keys, if an operand or the result is scores.
    pub pairs: Option<&'a [Ragged; 2]>,
}

impl Gradient<'_> {
    /// The operand at a position.
    pub fn operand(&self, position: usize) -> &Tensor {
        &self.operands[position]
    }

    /// The division of `total` rows by the offsets in an operand.
    pub fn ragged(&self, offsets: usize, total: &Dim) -> Ragged {
        Ragged::of(self.operand(offsets), total)
    }

    /// Sums a gradient of the result's shape over the axes along which an operand was broadcast.
    pub fn summed(&self, operand: usize, gradient: &Tensor) -> Tensor {
        let (x, shape) = (self.operand(operand), self.operand(operand).shape());
        if gradient.ty().layout == Layout::Scores {
            return match (self.pairs, x.ty().layout) {
                (Some([rows, keys]), Layout::Device) => {
                    let sums = gradient.reduce_scores(ReduceOp::Sum, ScoreKind::Sample, rows, keys);
                    sums.sum(0).sum(1).reshape(shape)
                }
                _ => gradient.clone(),
            };
        }
        let missing = gradient.rank().saturating_sub(shape.len());
        let is_repeated = |axis: usize| {
            let extent = axis.checked_sub(missing).and_then(|axis| shape.get(axis));
            extent.is_none_or(|extent| *extent == 1.into() && gradient.dim(axis) != 1.into())
        };
        let axes = (0..gradient.rank()).filter(|&axis| is_repeated(axis));
        axes.fold(gradient.clone(), |sum, axis| sum.sum(axis)).reshape(shape)
    }

    /// The gradient of the elements `x` of a reduction. `repeat` broadcasts a result to their shape, `sum` reduces to the
    /// shape of the result.
    pub fn combined(
        &self,
        op: ReduceOp,
        x: &Tensor,
        repeat: impl Fn(&Tensor) -> Tensor,
        sum: impl Fn(&Tensor) -> Tensor,
    ) -> Tensor {
        let gradient = repeat(self.of);
        if op == ReduceOp::Sum {
            return gradient;
        }
        // Equal largest elements share the gradient.
        let [one, zero] = [1.0, 0.0].map(|value| x.scalar(DType::F32, value));
        let hit = x.equal(repeat(self.result)).select(&one, &zero);
        gradient * &hit / repeat(&sum(&hit))
    }
}

/// Scalar functions of traced values.
pub(super) struct Traced<'a>(pub &'a Tensor);

impl Algebra for Traced<'_> {
    type Value = Tensor;

    fn constant(&mut self, scalar: Scalar, value: f64) -> Tensor {
        let dtype = match scalar {
            Scalar::F32 => DType::F32,
            Scalar::I64 => DType::I64,
            Scalar::I32 => DType::I32,
            Scalar::Bool => DType::Bool,
        };
        self.0.scalar(dtype, value)
    }

    fn unary(&mut self, op: UnaryOp, a: &Tensor) -> Tensor {
        a.unary(op)
    }

    fn binary(&mut self, op: BinaryOp, a: &Tensor, b: &Tensor) -> Tensor {
        a.binary(op, b)
    }

    fn select(&mut self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
        condition.select(a, b)
    }

    fn known(&self, _: &Tensor) -> Option<i64> {
        None
    }
}
