use super::{Axis, Tensor};
use crate::op::{JaggedJaggedMatMul, JaggedMatMul, MatMul, Reduce, ReduceOp, SegmentReduce};
use crate::{DType, trace::Ragged};

impl Tensor {
    /// Matmul of the last two axes, `[.., M, K]` by `[.., K, N]`; leading axes broadcast. The result is `F32`.
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        self.apply(MatMul, &[other])
    }

    /// `x W^T + bias` for `x` `[.., in]`, with `W` `[out, in]` and a bias `[out]`: `[.., out]`.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let product = self.matmul(&weight.transpose(0, 1));
        bias.map_or_else(|| product.clone(), |bias| &product + bias)
    }

    /// `self + a b`, with `a` `[M, K]`, `b` `[K, N]`, and this `[M, N]`, or `[N]`, which is added to every row.
    pub fn addmm(&self, a: &Tensor, b: &Tensor) -> Tensor {
        &a.matmul(b) + self
    }

    /// `x_i dense_b` for every row `i` of sample `b`: `[total, K]` by `dense` `[B, K, N]` is `[total, N]`.
    pub fn jagged_matmul(&self, dense: &Tensor, rows: &Ragged) -> Tensor {
        self.apply(JaggedMatMul, &[dense, &rows.offsets])
    }

    /// `sum_i x_i^T y_i` over the rows `i` of every sample, with `x` `[total, K]` this and `y` `[total, N]`: `[B, K, N]`.
    pub fn jagged_jagged_matmul(&self, y: &Tensor, rows: &Ragged) -> Tensor {
        self.apply(JaggedJaggedMatMul, &[y, &rows.offsets])
    }

    /// Reduces the rows of every sample, `[total, ..]` to `[B, ..]`.
    pub fn segment_reduce(&self, op: ReduceOp, rows: &Ragged) -> Tensor {
        self.apply(SegmentReduce { op }, &[&rows.offsets])
    }

    /// The sum along an axis, which is kept with extent 1.
    pub fn sum(&self, axis: impl Axis) -> Tensor {
        self.along("sum", axis, |axis| Reduce { op: ReduceOp::Sum, axis })
    }

    /// The maximum along an axis, which is kept with extent 1; NaN if an element is NaN.
    pub fn max(&self, axis: impl Axis) -> Tensor {
        self.along("max", axis, |axis| Reduce { op: ReduceOp::Max, axis })
    }

    /// The minimum along an axis, which is kept with extent 1; NaN if an element is NaN.
    pub fn min(&self, axis: impl Axis) -> Tensor {
        self.along("min", axis, |axis| Reduce { op: ReduceOp::Min, axis })
    }

    /// The mean along an axis, which is kept with extent 1.
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
