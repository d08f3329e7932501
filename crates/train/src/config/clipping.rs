use super::{ConfigError, number};
use serde::Deserialize;

/// How gradients of dense parameters are limited.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GradClipping {
    /// What is limited.
    pub clipping_type: ClippingType,
    /// The limit, above 0.
    pub max_gradient: f64,
}

/// What [`GradClipping`] limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClippingType {
    /// The Euclidean norm of all gradients as one vector.
    Norm,
    /// The size of every element.
    Value,
    /// Nothing.
    #[default]
    None,
}

impl Default for GradClipping {
    fn default() -> Self {
        Self { clipping_type: ClippingType::None, max_gradient: 1.0 }
    }
}

impl GradClipping {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        number("max_gradient", self.max_gradient, f64::from(f32::MIN_POSITIVE)..)
    }
}
