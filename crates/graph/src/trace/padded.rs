use super::{Ragged, Tensor};
use crate::op::{JaggedToPadded, PaddedToJagged, ReduceOp};
use crate::{DType, Dim, Number, Scalar};

impl Tensor {
    /// Pads rows `[total, ..]` to `[B, extent, ..]`: shorter samples are filled with `fill`, longer ones truncated.
    #[track_caller]
    pub fn jagged_to_padded(&self, rows: impl AsRef<Ragged>, extent: &Dim, fill: impl Into<Number>) -> Tensor {
        let rows = rows.as_ref();
        let dtype = if self.dtype().scalar() == Scalar::F32 { DType::F32 } else { self.dtype() };
        let fill = self.scalar(dtype, fill);
        self.apply(JaggedToPadded { extent: extent.clone() }, &[&fill, &rows.offsets])
    }

    /// The inverse of [`Tensor::jagged_to_padded`]: the first rows of every sample of `[B, N, ..]`, as `[total, ..]`.
    /// Samples longer than `N` are 0 from row `N` on.
    #[track_caller]
    pub fn padded_to_jagged(&self, rows: impl AsRef<Ragged>) -> Tensor {
        let rows = rows.as_ref();
        self.apply(PaddedToJagged { rows: rows.total.clone() }, &[&rows.offsets])
    }

    /// The sum of the rows of every sample, `[total, ..]` to `[B, ..]`; 0 for an empty sample.
    #[track_caller]
    pub fn jagged_sum(&self, rows: impl AsRef<Ragged>) -> Tensor {
        let rows = rows.as_ref();
        self.segment_reduce(ReduceOp::Sum, rows)
    }

    /// The mean of the rows of every sample, `[total, ..]` to `[B, ..]`; 0 for an empty sample.
    #[track_caller]
    pub fn jagged_mean(&self, rows: impl AsRef<Ragged>) -> Tensor {
        let rows = rows.as_ref();
        let sums = self.jagged_sum(rows);
        let mut shape: Vec<Dim> = vec![1.into(); sums.rank()];
        if let Some(first) = shape.first_mut() {
            *first = rows.batch.clone();
        }
        let count = rows.lengths.cast(DType::F32).clamp(Some(1.0), None).reshape(&shape);
        &sums / &count
    }

    /// The softmax `e^x / sum e^x` over the rows of every sample.
    #[track_caller]
    pub fn jagged_softmax(&self, rows: impl AsRef<Ragged>) -> Tensor {
        let rows = rows.as_ref();
        self.jagged_to_padded(rows, &rows.max().as_dim(), f32::NEG_INFINITY).softmax(1).padded_to_jagged(rows)
    }

    /// The sum of this table's rows `[R, D]` at the ids `[total]` of every sample: `[B, D]`.
    #[track_caller]
    pub fn embedding_bag_sum(&self, ids: impl AsRef<Tensor>, rows: impl AsRef<Ragged>) -> Tensor {
        let (ids, rows) = (ids.as_ref(), rows.as_ref());
        self.gather(ids).jagged_sum(rows)
    }

    /// The mean of this table's rows `[R, D]` at the ids `[total]` of every sample: `[B, D]`; 0 without ids.
    #[track_caller]
    pub fn embedding_bag_mean(&self, ids: impl AsRef<Tensor>, rows: impl AsRef<Ragged>) -> Tensor {
        let (ids, rows) = (ids.as_ref(), rows.as_ref());
        self.gather(ids).jagged_mean(rows)
    }
}
