use rewire_graph::Coded;
use std::ops::{Bound, RangeBounds};
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a configuration is invalid.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "train_config.")]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not JSON, or not an object with the keys of a configuration.
    #[error("training configuration: {0}")]
    Parse(#[from] serde_json::Error),
    /// A key is unknown, has a wrong type, or lacks a nested key.
    #[error("training configuration: `{key}`: {source}")]
    Key {
        /// The path of the key, such as `dense_optimizer.adam_optimizer.lr`.
        key: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// A value is out of bounds.
    #[error("`{key}` must be {expected}, got {actual}")]
    Value {
        /// The path of the key.
        key: String,
        /// The allowed values.
        expected: String,
        /// The actual value.
        actual: String,
    },
    /// An unsupported optimizer.
    #[error("`{key}` cannot be {actual}: expected one of {supported}")]
    Unsupported {
        /// The path of the key.
        key: String,
        /// The actual value.
        actual: String,
        /// The supported optimizers.
        supported: String,
    },
}

impl Coded for ConfigError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

impl ConfigError {
    pub(crate) fn new(key: &str, expected: impl Into<String>, actual: impl ToString) -> Self {
        Self::Value { key: key.to_owned(), expected: expected.into(), actual: actual.to_string() }
    }

    /// Prefixes the error's key with an outer key.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        if let Self::Key { key, .. } | Self::Value { key, .. } | Self::Unsupported { key, .. } = &mut self {
            let separator = if key.is_empty() { "" } else { "." };
            *key = format!("{outer}{separator}{key}");
        }
        self
    }
}

/// Checks that a number is in `range` as f32, the type of kernels.
pub(crate) fn number(key: &str, value: f64, range: impl RangeBounds<f64>) -> Result<(), ConfigError> {
    let single = value as f32;
    if range.contains(&single.into()) && (value == 0.0 || single.is_normal()) {
        return Ok(());
    }
    let low = match range.start_bound() {
        Bound::Included(low) => format!("at least {low}"),
        Bound::Excluded(low) => format!("above {low}"),
        Bound::Unbounded => "a number".to_owned(),
    };
    let high = match range.end_bound() {
        Bound::Included(high) => format!(" and at most {high}"),
        Bound::Excluded(high) => format!(" and below {high}"),
        Bound::Unbounded => String::new(),
    };
    Err(ConfigError::new(key, format!("{low}{high} as f32 has it"), value))
}
