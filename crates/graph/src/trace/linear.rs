use super::{Axis, Tensor};
use crate::op::{JaggedJaggedMatMul, JaggedMatMul, MatMul, Reduce, ReduceOp, SegmentReduce};
use crate::{DType, trace::Ragged};

impl Tensor {
    /// Matmul of the last two axes, `[.., M, K]` by `[.., K, N]`; leading axes broadcast. The result is `F32`.
    #[track_caller]
    pub fn matmul(&self, other: impl AsRef<Tensor>) -> Tensor {
        let other = other.as_ref();
        self.apply(MatMul, &[other])
    }

    /// `x W^T + bias` for `x` `[.., in]`, with `W` `[out, in]` and a bias `[out]`: `[.., out]`.
    #[track_caller]
    pub fn linear(&self, weight: impl AsRef<Tensor>, bias: Option<&Tensor>) -> Tensor {
        let weight = weight.as_ref();
        let product = self.matmul(&weight.transpose(0, 1));
        match bias {
            Some(bias) => product + bias,
            None => product,
        }
    }

    /// `self + a b`, with `a` `[M, K]`, `b` `[K, N]`, and this `[M, N]`, or `[N]`, which is added to every row.
    #[track_caller]
    pub fn addmm(&self, a: impl AsRef<Tensor>, b: impl AsRef<Tensor>) -> Tensor {
        let (a, b) = (a.as_ref(), b.as_ref());
        &a.matmul(b) + self
    }

    /// `x_i dense_b` for every row `i` of sample `b`: `[total, K]` by `dense` `[B, K, N]` is `[total, N]`.
    #[track_caller]
    pub fn jagged_matmul(&self, dense: impl AsRef<Tensor>, rows: impl AsRef<Ragged>) -> Tensor {
        let (dense, rows) = (dense.as_ref(), rows.as_ref());
        self.apply(JaggedMatMul, &[dense, &rows.offsets])
    }

    /// `sum_i x_i^T y_i` over the rows `i` of every sample, with `x` `[total, K]` this and `y` `[total, N]`: `[B, K, N]`.
    #[track_caller]
    pub fn jagged_jagged_matmul(&self, y: impl AsRef<Tensor>, rows: impl AsRef<Ragged>) -> Tensor {
        let (y, rows) = (y.as_ref(), rows.as_ref());
        self.apply(JaggedJaggedMatMul, &[y, &rows.offsets])
    }

    /// Reduces the rows of every sample, `[total, ..]` to `[B, ..]`.
    #[track_caller]
    pub fn segment_reduce(&self, op: ReduceOp, rows: impl AsRef<Ragged>) -> Tensor {
        let rows = rows.as_ref();
        self.apply(SegmentReduce { op }, &[&rows.offsets])
    }

    /// The sum along an axis, which is kept with extent 1.
    #[track_caller]
    pub fn sum(&self, axis: impl Axis) -> Tensor {
        self.along("sum", axis, |axis| Reduce { op: ReduceOp::Sum, axis })
    }

    /// The maximum along an axis, which is kept with extent 1; NaN if an element is NaN.
    #[track_caller]
    pub fn max(&self, axis: impl Axis) -> Tensor {
        self.along("max", axis, |axis| Reduce { op: ReduceOp::Max, axis })
    }

    /// The minimum along an axis, which is kept with extent 1; NaN if an element is NaN.
    #[track_caller]
    pub fn min(&self, axis: impl Axis) -> Tensor {
        self.along("min", axis, |axis| Reduce { op: ReduceOp::Min, axis })
    }

    /// The mean along an axis, which is kept with extent 1.
    #[track_caller]
    pub fn mean(&self, axis: impl Axis) -> Tensor {
        let sum = self.sum(axis);
        match self.dim(axis).as_const() {
            Some(extent) => &sum * (1.0 / extent as f64),
            None => {
                let extent = super::shared(&self.state, crate::op::HostOp::Size(self.dim(axis)), &[]);
                &sum / extent.cast(DType::F32)
            }
        }
    }
}
