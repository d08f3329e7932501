use rewire_graph::{Coded, GraphError};
use serde_json::Value;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a configuration cannot be traced.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "decoder.")]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not JSON.
    #[error("the configuration is not JSON")]
    Json(#[from] serde_json::Error),
    /// A key is missing.
    #[error("the configuration has no `{key}`")]
    Missing {
        /// The path of the key.
        key: String,
    },
    /// A key has a value that is not supported.
    #[error("`{key}` must be {expected}, got {actual}")]
    Value {
        /// The path of the key.
        key: String,
        /// The valid values.
        expected: String,
        /// The actual value.
        actual: String,
    },
    /// An unknown key, which may change the results of the model.
    #[error("the configuration has the unknown key `{key}` = {value}")]
    Unknown {
        /// The key.
        key: String,
        /// The actual value.
        value: String,
    },
    /// An operator rejected its operands.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl ConfigError {
    pub(crate) fn value(key: &str, expected: impl Into<String>, actual: &Value) -> Self {
        Self::Value { key: key.to_owned(), expected: expected.into(), actual: actual.to_string() }
    }
}

impl Coded for ConfigError {
    fn code(&self) -> &'static str {
        match self {
            Self::Graph(source) => source.code(),
            other => other.into(),
        }
    }
}
