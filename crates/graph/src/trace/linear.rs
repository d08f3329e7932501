use super::Tensor;
use crate::op::{JaggedMatMul, MatMul, Reduce, ReduceOp};
use crate::{DType, trace::Ragged};

impl Tensor {
    /// Matrix product of the last two axes; leading axes broadcast.
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        self.apply(MatMul, &[other])
    }

    /// `x W^T + bias` with `W` of shape `[out, in]`.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let product = self.matmul(&weight.transpose(0, 1));
        bias.map_or_else(|| product.clone(), |bias| &product + bias)
    }

    /// `self + a b`; a 1-D `self` is added to every row.
    pub fn addmm(&self, a: &Tensor, b: &Tensor) -> Tensor {
        &a.matmul(b) + self
    }

    /// For the rows of sample `b`: `x_i dense_b`, with `dense` `[B, K, N]`.
    pub fn jagged_matmul(&self, dense: &Tensor, rows: &Ragged) -> Tensor {
        self.apply(JaggedMatMul, &[dense, &rows.offsets])
    }

    /// The sum along an axis, which stays with extent 1.
    pub fn sum(&self, axis: usize) -> Tensor {
        self.apply(Reduce { op: ReduceOp::Sum, axis }, &[])
    }

    /// The largest element along an axis, which stays with extent 1.
    pub fn max(&self, axis: usize) -> Tensor {
        self.apply(Reduce { op: ReduceOp::Max, axis }, &[])
    }

    /// The smallest element along an axis, which stays with extent 1.
    pub fn min(&self, axis: usize) -> Tensor {
        self.apply(Reduce { op: ReduceOp::Min, axis }, &[])
    }

    /// The mean along an axis, which stays with extent 1.
    pub fn mean(&self, axis: usize) -> Tensor {
        let sum = self.sum(axis);
        match self.ty().extent(axis) {
            Some(extent) => &sum * (1.0 / extent as f64),
            None => {
                let extent = super::shared(&self.state, crate::op::HostOp::Size(self.dim(axis)), &[]);
                &sum / &extent.cast(DType::F32)
            }
        }
    }

    /// `e^x / sum e^x` along an axis.
    pub fn softmax(&self, axis: usize) -> Tensor {
        let exp = (self - &self.max(axis)).exp();
        &exp / &exp.sum(axis)
    }

    /// `(x - mean) / sqrt(var + eps)` over the last axis, with the biased variance.
    pub fn normalize(&self, eps: f64) -> Tensor {
        let axis = self.rank().saturating_sub(1);
        let centered = self - &self.mean(axis);
        let variance = centered.square().mean(axis);
        &centered * &(&variance + eps).rsqrt()
    }

    /// Layer norm over the last axis: `normalize(x) * weight + bias`.
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        &(&self.normalize(eps) * weight) + bias
    }

    /// `x / sqrt(mean(x^2) + eps) * weight` over the last axis.
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Tensor {
        let axis = self.rank().saturating_sub(1);
        let scale = (&self.square().mean(axis) + eps).rsqrt();
        &(self * &scale) * weight
    }

    /// `x * sigmoid(layer_norm(x))`
    pub fn swish_layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        self * &self.layer_norm(weight, bias, eps).sigmoid()
    }
}
