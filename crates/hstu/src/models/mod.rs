//! Whole models, traced from their configurations.

pub mod dlrm_hstu;
mod features;
pub mod hstu_match;
pub mod semantic_ids;

use crate::modules::ConfigError;
use rewire_graph::Coded;
use rewire_graph::{GraphError, TensorSizeError, keys_to};
use serde::de::DeserializeOwned;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a model could not be traced.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "model.")]
#[non_exhaustive]
pub enum ModelError {
    /// The text is not a valid configuration.
    #[error("configuration: {0}")]
    Parse(#[from] serde_json::Error),
    /// A key of the configuration is unknown or has the wrong type, or a key inside it is missing.
    #[error("configuration: `{keys}`: {source}")]
    Key {
        /// The path of the key, such as `hstu.stu.num_heads` or `fusion_mtl_tower.task_configs[1].task_name`.
        keys: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// A value of the configuration cannot be used.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// A constant does not fit its shape.
    #[error(transparent)]
    Constant(#[from] TensorSizeError),
    /// An operator rejected its operands.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl Coded for ModelError {
    fn code(&self) -> &'static str {
        match self {
            Self::Graph(source) => source.code(),
            other => other.into(),
        }
    }
}

/// Parses a configuration from the text of a `config.json`.
pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, ModelError> {
    serde_json::from_str(text).map_err(|source| match keys_to(text, &source) {
        Some(keys) => ModelError::Key { keys, source },
        None => ModelError::Parse(source),
    })
}
