//! Dynamic loss scaling for f16.

use crate::Moment;
use crate::config::GradScaler;
use rewire_graph::Tensor;

/// The loss scale, and the number of steps without an overflow since it changed, each `[1]`.
#[derive(Clone, Debug)]
pub struct LossScale {
    /// The factor of losses.
    pub scale: Tensor,
    /// The number of steps.
    pub growth: Tensor,
}

impl GradScaler {
    /// The states of a [`LossScale`], `[1]` each: the scale, and the steps.
    pub fn moments(&self) -> [Moment; 2] {
        let scale = Moment { name: "scale", rows: false, initial: self.init_scale as f32 };
        [scale, Moment { name: "growth", initial: 0.0, ..scale }]
    }

    /// The scale after a step. `is_finite` `[1]` is 1 if the gradients of the step are finite, otherwise 0.
    ///
    /// An overflow multiplies the scale by `backoff_factor`. After `growth_interval` steps without an overflow it is
    /// multiplied by `growth_factor`, unless the result exceeds f32. Both reset the step count to 0.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope, interpret};
    /// use rewire_train::{LossScale, config::GradScaler};
    /// use std::collections::HashMap;
    ///
    /// let scope = Scope::new();
    /// let [is_finite, scale, growth] = ["is_finite", "scale", "growth"].map(|name| scope.input(name, DType::F32, [1]));
    /// let next = GradScaler::default().advance(&is_finite, &LossScale { scale, growth });
    /// let graph = scope.finish(&[("scale'", next.scale), ("growth'", next.growth)])?;
    /// let inputs = [("is_finite", 0.0), ("scale", 1024.0), ("growth", 7.0)];
    /// let inputs = inputs.map(|(name, x)| (name.to_owned(), HostTensor::vector::<f32>(&[x])));
    /// let outputs = interpret(&graph, &inputs.into(), &HashMap::new())?;
    /// assert_eq!((outputs["scale'"].to_f64(), outputs["growth'"].to_f64()), (vec![512.0], vec![0.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn advance(&self, is_finite: &Tensor, LossScale { scale, growth }: &LossScale) -> LossScale {
        let is_finite = is_finite.gt(0.5);
        let steps = growth + 1.0;
        let is_grown = steps.ge(self.growth_interval.get() as f64);
        let is_held = scale.le(f64::from(f32::MAX) / self.growth_factor);
        let kept = is_grown.and(is_held).select(&(scale * self.growth_factor), scale);
        let counted = is_grown.select(&(growth * 0.0), &steps);
        LossScale {
            scale: is_finite.select(&kept, &(scale * self.backoff_factor)),
            growth: is_finite.select(&counted, &(growth * 0.0)),
        }
    }
}
