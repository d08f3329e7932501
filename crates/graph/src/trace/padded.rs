use super::{Ragged, Tensor};
use crate::op::{JaggedToPadded, PaddedToJagged, ReduceOp};
use crate::{DType, Dim, Number, Scalar};

impl Tensor {
    /// Rows `[total, ..]` side by side, `[B, extent, ..]`: shorter samples end in `fill`, longer ones are cut off.
    pub fn jagged_to_padded(&self, rows: &Ragged, extent: &Dim, fill: impl Into<Number>) -> Tensor {
        let dtype = if self.dtype().scalar() == Scalar::F32 { DType::F32 } else { self.dtype() };
        let fill = self.scalar(dtype, fill);
        self.apply(JaggedToPadded { extent: extent.clone() }, &[&fill, &rows.offsets])
    }

    /// The inverse of [`Tensor::jagged_to_padded`]: of `[B, N, ..]` the first rows of every sample, `[total, ..]`.
    /// Rows of samples longer than `N` are 0 from row `N` on.
    pub fn padded_to_jagged(&self, rows: &Ragged) -> Tensor {
        self.apply(PaddedToJagged { rows: rows.total.clone() }, &[&rows.offsets])
    }

    /// The sum of the rows of every sample, `[total, ..]` to `[B, ..]`; 0 for an empty sample.
    pub fn jagged_sum(&self, rows: &Ragged) -> Tensor {
        self.segment_reduce(ReduceOp::Sum, rows)
    }

    /// The mean of the rows of every sample, `[total, ..]` to `[B, ..]`; 0 for an empty sample.
    pub fn jagged_mean(&self, rows: &Ragged) -> Tensor {
        let sums = self.jagged_sum(rows);
        let mut shape: Vec<Dim> = vec![1.into(); sums.rank()];
        if let Some(first) = shape.first_mut() {
            *first = rows.batch.clone();
        }
        let count = rows.lengths.cast(DType::F32).clamp(Some(1.0), None).reshape(&shape);
        &sums / &count
    }

    /// `e^x / sum e^x` over the rows of every sample.
    pub fn jagged_softmax(&self, rows: &Ragged) -> Tensor {
        self.jagged_to_padded(rows, &rows.max().as_dim(), f32::NEG_INFINITY).softmax(1).padded_to_jagged(rows)
    }

    /// Of this table `[R, D]` the sum of the rows `ids` `[total]` of every sample, `[B, D]`.
    pub fn embedding_bag_sum(&self, ids: &Tensor, rows: &Ragged) -> Tensor {
        self.gather(ids).jagged_sum(rows)
    }

    /// Of this table `[R, D]` the mean of the rows `ids` `[total]` of every sample, `[B, D]`; 0 without ids.
    pub fn embedding_bag_mean(&self, ids: &Tensor, rows: &Ragged) -> Tensor {
        self.gather(ids).jagged_mean(rows)
    }
}
