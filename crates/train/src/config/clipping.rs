use super::{ConfigError, number};
use serde::Deserialize;

/// Clipping of the gradients of dense parameters.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GradClipping {
    /// The kind of clipping.
    pub clipping_type: ClippingType,
    /// The limit, above 0.
    pub max_gradient: f64,
    /// The `p` of the norm `(sum |g|^p)^(1/p)`, above 0; infinity selects the largest absolute element.
    pub norm_type: f64,
}

/// The kind of [`GradClipping`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClippingType {
    /// Clips the norm of all gradients as one vector.
    Norm,
    /// Clips the absolute value of every element.
    Value,
    /// No clipping.
    #[default]
    None,
}

impl Default for GradClipping {
    fn default() -> Self {
        Self { clipping_type: ClippingType::None, max_gradient: 1.0, norm_type: 2.0 }
    }
}

impl GradClipping {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        number("max_gradient", self.max_gradient, f64::from(f32::MIN_POSITIVE)..)?;
        match self.norm_type == f64::INFINITY {
            true => Ok(()),
            false => number("norm_type", self.norm_type, f64::from(f32::MIN_POSITIVE)..),
        }
    }
}
