//! Whole models, traced from their configurations.

pub mod dlrm_hstu;

use crate::modules::ConfigError;
use rewire_graph::{GraphError, TensorSizeError};
use thiserror::Error;

/// Why a model could not be traced.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The configuration is not one: a key is unknown, missing or of another type.
    #[error("configuration: {0}")]
    Parse(#[from] serde_json::Error),
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
