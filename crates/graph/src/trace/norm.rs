use super::{Axis, Tensor, poisoned};

impl Tensor {
    /// Rows divided by their Euclidean norms, `x / max(|x|, shortest)` along the last axis, in the shape of `x`.
    ///
    /// No gradient passes through the norm of a row that is not longer than `shortest`, such as a row of zeros.
    #[track_caller]
    pub fn unit_rows(&self, shortest: f64) -> Tensor {
        // The square root has no derivative at 0, so the sum is clamped first.
        self / self.square().sum(-1).maximum(shortest * shortest).sqrt()
    }

    /// `e^(x - max x) / sum e^(x - max x)` along an axis.
    #[track_caller]
    pub fn softmax(&self, axis: impl Axis) -> Tensor {
        let exp = (self - self.max(axis)).exp();
        &exp / exp.sum(axis)
    }

    /// `(x - mean) / sqrt(var + eps)` over the last axis, with the biased variance.
    ///
    /// The mean of the centered row is subtracted too: in a row of equal elements it is the rounding error of the mean,
    /// which a small `eps` would magnify.
    #[track_caller]
    pub fn normalize(&self, eps: f64) -> Tensor {
        self.require_norm("normalize", eps, &[]);
        let centered = self - self.mean(-1);
        let rest = centered.mean(-1);
        let variance = centered.square().mean(-1) - rest.square();
        (centered - rest) * (variance + eps).rsqrt()
    }

    /// Layer norm over the last axis (Ba et al., 2016): `normalize(x) * weight + bias`, with `weight` and `bias`
    /// `[width]`. `eps` is added to the variance.
    #[track_caller]
    pub fn layer_norm(&self, weight: impl AsRef<Tensor>, bias: impl AsRef<Tensor>, eps: f64) -> Tensor {
        let (weight, bias) = (weight.as_ref(), bias.as_ref());
        self.require_norm("layer_norm", eps, &[("weight", weight), ("bias", bias)]);
        self.normalize(eps) * weight + bias
    }

    /// RMS norm over the last axis (Zhang and Sennrich, 2019): `x / sqrt(mean(x^2) + eps) * weight`, with `weight`
    /// `[width]`.
    #[track_caller]
    pub fn rms_norm(&self, weight: impl AsRef<Tensor>, eps: f64) -> Tensor {
        let weight = weight.as_ref();
        self.require_norm("rms_norm", eps, &[("weight", weight)]);
        self * (self.square().mean(-1) + eps).rsqrt() * weight
    }

    /// `x * sigmoid(layer_norm(x))`, with the arguments of [`Tensor::layer_norm`].
    #[track_caller]
    pub fn swish_layer_norm(&self, weight: impl AsRef<Tensor>, bias: impl AsRef<Tensor>, eps: f64) -> Tensor {
        let (weight, bias) = (weight.as_ref(), bias.as_ref());
        self.require_norm("swish_layer_norm", eps, &[("weight", weight), ("bias", bias)]);
        self * self.layer_norm(weight, bias, eps).sigmoid()
    }

    /// Batch norm for inference (Ioffe and Szegedy, 2015), over `axis` of this:
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`, with statistics and affine parameters `[extent of axis]`.
    #[track_caller]
    pub fn batch_norm(&self, axis: impl Axis, [mean, variance, weight, bias]: [&Tensor; 4], eps: f64) -> Tensor {
        let named = [("mean", mean), ("variance", variance), ("weight", weight), ("bias", bias)];
        let Some(axis) = self.axis("batch_norm", axis) else { return poisoned(&self.state) };
        self.require_eps("batch_norm", eps);
        for (argument, tensor) in named {
            tensor.require_shape("batch_norm", argument, &[self.dim(axis)]);
        }
        let mut shape = vec![1.into(); self.rank().saturating_sub(axis)];
        if let Some(first) = shape.first_mut() {
            *first = self.dim(axis);
        }
        let along = |x: &Tensor| x.reshape(&shape);
        let scale = weight * (variance + eps).rsqrt();
        (self - along(mean)) * along(&scale) + along(bias)
    }

    #[track_caller]
    fn require_norm(&self, op: &str, eps: f64, affine: &[(&str, &Tensor)]) {
        let floats = self.rank() > 0 && self.dtype().is_float();
        self.require(op, "x", floats, "of floats with at least one axis", self.ty());
        self.require_eps(op, eps);
        for (argument, tensor) in affine {
            tensor.require_shape(op, argument, &[self.dim(self.rank().saturating_sub(1))]);
        }
    }

    #[track_caller]
    fn require_eps(&self, op: &str, eps: f64) {
        self.require(op, "eps", eps >= 0.0 && (eps as f32).is_finite(), "at least 0 and finite in f32", eps);
    }
}
