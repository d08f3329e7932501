use super::Tensor;
use crate::op::{JaggedMatMul, MatMul, Reduce, ReduceOp, Unfold};
use crate::{DType, trace::Ragged};

impl Tensor {
    /// Matrix product of the last two axes, `[.., M, K]` by `[.., K, N]`; leading axes broadcast. An `F32`.
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        self.apply(MatMul, &[other])
    }

    /// `x W^T + bias` for `x` `[.., in]`, with `W` `[out, in]` and a bias `[out]`: `[.., out]`.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let product = self.matmul(&weight.transpose(0, 1));
        bias.map_or_else(|| product.clone(), |bias| &product + bias)
    }

    /// `self + a b`, with `a` `[M, K]`, `b` `[K, N]` and this `[M, N]`, or `[N]` to be added to every row.
    pub fn addmm(&self, a: &Tensor, b: &Tensor) -> Tensor {
        &a.matmul(b) + self
    }

    /// `x_i dense_b` for every row `i` of sample `b`: `[total, K]` by `dense` `[B, K, N]` is `[total, N]`.
    pub fn jagged_matmul(&self, dense: &Tensor, rows: &Ragged) -> Tensor {
        self.apply(JaggedMatMul, &[dense, &rows.offsets])
    }

    /// Cross-correlation of images `[N, C, H, W]` with `weight` `[C', C / groups, kh, kw]` and an optional bias
    /// `[C']`: `[N, C', H', W']`. The kernel of `patches` is that of `weight`.
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, patches: &Unfold) -> Tensor {
        let extents = |axis| self.ty().extent(axis).unwrap_or(0);
        let Some([height, width]) = patches.extents(extents(2), extents(3)) else {
            return self.fail("conv2d", "x", "[N, C, H, W] with room for the kernel", self.ty());
        };
        let (channels, groups) = (weight.ty().extent(0).unwrap_or(0), patches.groups.max(1));
        if weight.rank() != 4 || channels % groups != 0 {
            return weight.fail("conv2d", "weight", "[C', C / groups, kh, kw]", weight.ty());
        }
        let columns = self.apply(patches.clone(), &[]);
        let rows = weight.reshape(&[groups.into(), (channels / groups).into(), columns.dim(2)]);
        let images = rows.matmul(&columns).reshape(&[self.dim(0), channels.into(), height.into(), width.into()]);
        let bias = bias.map(|bias| bias.reshape(&[channels.into(), 1.into(), 1.into()]));
        bias.map_or_else(|| images.clone(), |bias| &images + &bias)
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

    /// `e^(x - max x) / sum e^(x - max x)` along an axis.
    pub fn softmax(&self, axis: usize) -> Tensor {
        let exp = (self - &self.max(axis)).exp();
        &exp / &exp.sum(axis)
    }

    /// `(x - mean) / sqrt(var + eps)` over the last axis, with the biased variance.
    ///
    /// The mean of what is left after subtracting the mean is subtracted as well: in a row of equal elements it
    /// is the rounding of the mean, which a small `eps` would magnify.
    pub fn normalize(&self, eps: f64) -> Tensor {
        let axis = self.rank().saturating_sub(1);
        let centered = self - &self.mean(axis);
        let rest = centered.mean(axis);
        let variance = &centered.square().mean(axis) - &rest.square();
        &(&centered - &rest) * &(&variance + eps).rsqrt()
    }

    /// Layer norm over the last axis (Ba et al., 2016): `normalize(x) * weight + bias`, with `weight` and `bias`
    /// `[width]`. `eps` is added to the variance.
    pub fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        &(&self.normalize(eps) * weight) + bias
    }

    /// RMS norm over the last axis (Zhang and Sennrich, 2019): `x / sqrt(mean(x^2) + eps) * weight`, with `weight`
    /// `[width]`.
    pub fn rms_norm(&self, weight: &Tensor, eps: f64) -> Tensor {
        let axis = self.rank().saturating_sub(1);
        let scale = (&self.square().mean(axis) + eps).rsqrt();
        &(self * &scale) * weight
    }

    /// `x * sigmoid(layer_norm(x))`, with the arguments of [`Tensor::layer_norm`].
    pub fn swish_layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        self * &self.layer_norm(weight, bias, eps).sigmoid()
    }
}
