//! Gradient clipping.

use crate::config::{ClippingType, GradClipping};
use rewire_graph::{Dim, Tensor};

/// The norm `(sum |g|^p)^(1/p)` of all gradients as one vector, `[1]`. For infinite `p`, it is the largest absolute element. `None` if there
/// are no gradients. Gradients must have constant shapes.
pub fn global_norm(gradients: &[Tensor], p: f64) -> Option<Tensor> {
    if p == f64::INFINITY {
        let largest = gradients.iter().map(|gradient| largest(&gradient.abs()));
        return largest.reduce(|a, b| a.maximum(&b));
    }
    let power = |gradient: &Tensor| if p == 2.0 { gradient.square() } else { gradient.abs().pow(p) };
    let sum = gradients.iter().map(|gradient| total(&power(gradient))).reduce(|sum, next| sum + next)?;
    Some(if p == 2.0 { sum.sqrt() } else { sum.pow(p.recip()) })
}

/// The largest element, `[1]`.
fn largest(x: &Tensor) -> Tensor {
    let count = x.shape().iter().try_fold(Dim::from(1), |count, extent| count.product(extent));
    x.reshape([count.unwrap_or_default()]).max(0)
}

/// The sum of all elements, `[1]`. It sums each row first, for more parallelism.
fn total(x: &Tensor) -> Tensor {
    if x.rank() == 0 {
        return x.reshape([1]);
    }
    let rows = x.sum(-1);
    let count = rows.shape().iter().try_fold(Dim::from(1), |count, extent| count.product(extent));
    rows.reshape([count.unwrap_or_default()]).sum(0)
}

impl GradClipping {
    /// Clips gradients as `clipping_type` selects: multiplies all by `min(1, max_gradient / (norm + 1e-6))`, with their [`global_norm`]; clamps
    /// each element to `-max_gradient..=max_gradient`; or returns them unchanged. Gradients are `F32` of constant shapes.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope, interpret};
    /// use rewire_train::config::{ClippingType, GradClipping};
    /// use std::collections::HashMap;
    ///
    /// let scope = Scope::new();
    /// let gradients = ["a", "b"].map(|name| scope.input(name, DType::F32, [2]));
    /// let clipping = GradClipping { clipping_type: ClippingType::Value, max_gradient: 1.5, ..GradClipping::default() };
    /// let clipped = clipping.apply(&gradients);
    /// let graph = scope.finish(&[("a'", clipped[0].clone()), ("b'", clipped[1].clone())])?;
    /// let inputs = [("a", [1.0, -2.0]), ("b", [3.0, 0.0])].map(|(name, x)| (name.to_owned(), HostTensor::vector::<f32>(&x)));
    /// let outputs = interpret(&graph, &inputs.into(), &HashMap::new())?;
    /// assert_eq!((outputs["a'"].to_f64(), outputs["b'"].to_f64()), (vec![1.0, -1.5], vec![1.5, 0.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn apply(&self, gradients: &[Tensor]) -> Vec<Tensor> {
        let most = self.max_gradient;
        match self.clipping_type {
            ClippingType::None => gradients.to_vec(),
            ClippingType::Value => gradients.iter().map(|gradient| gradient.clamp(Some(-most), Some(most))).collect(),
            ClippingType::Norm => {
                let Some(norm) = global_norm(gradients, self.norm_type) else { return vec![] };
                let factor = (most / (norm + 1e-6)).minimum(1.0);
                gradients.iter().map(|gradient| (gradient * &factor).reshape(gradient.shape())).collect()
            }
        }
    }
}
