use rewire_graph::Coded;
use std::ops::{Bound, RangeBounds};
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a configuration is none.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "train_config.")]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is no JSON, or no object with the keys of a configuration.
    #[error("training configuration: {0}")]
    Parse(#[from] serde_json::Error),
    /// A key is unknown, lacks another one or is of another type.
    #[error("training configuration: `{key}`: {source}")]
    Key {
        /// The keys that lead to it, `dense_optimizer.adam_optimizer.lr`.
        key: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A value is out of bounds.
    #[error("`{key}` must be {expected}, got {actual}")]
    Value {
        /// The keys that lead to it.
        key: String,
        /// What it may be.
        expected: String,
        /// What it is.
        actual: String,
    },
    /// An optimizer that there is not.
    #[error("`{key}` cannot be {actual}: there are {supported}")]
    Unsupported {
        /// The keys that lead to it.
        key: String,
        /// What it is.
        actual: String,
        /// What there is.
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

    /// The error of a key that lies in another one.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        if let Self::Key { key, .. } | Self::Value { key, .. } | Self::Unsupported { key, .. } = &mut self {
            let separator = if key.is_empty() { "" } else { "." };
            *key = format!("{outer}{separator}{key}");
        }
        self
    }
}

/// Checks a number that kernels compute with, as single precision holds it.
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
