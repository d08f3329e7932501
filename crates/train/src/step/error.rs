use crate::ConfigError;
use rewire_graph::{Coded, DifferentiateError, GraphError};
use strum::IntoStaticStr;
use thiserror::Error;

/// Why an objective has no training step.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "step.")]
#[non_exhaustive]
pub enum StepError {
    /// The graph is invalid.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An optimizer is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The loss cannot be differentiated.
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    /// The loss is not an f32 of one element.
    #[error("the output `{name}` is not a loss: expected an f32 of one element, got {actual}")]
    Loss {
        /// The name.
        name: String,
        /// The actual type.
        actual: String,
    },
    /// A table is used in a way that row updates do not support.
    #[error("the table `{name}` {reason}: remove it from the tables; then all of its rows are updated in every step")]
    Table {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A growing table is neither declared as a table nor frozen.
    #[error(
        "the table `{name}` grows: declare it as a table of the objective, so that its rows are trained separately"
    )]
    Grown {
        /// The name.
        name: String,
    },
    /// The objective freezes a parameter or declares a table that the graph does not have.
    #[error("the model has no parameter of floats `{name}`: it has {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A parameter, input or output of the model has a reserved name.
    #[error("the model's `{name}` begins with `{prefix}`, which is reserved for training: rename it")]
    Reserved {
        /// The name.
        name: String,
        /// The reserved prefix.
        prefix: &'static str,
    },
    /// No parameter is trained.
    #[error("no parameter is trained: all are frozen, or the loss depends on none of them")]
    Nothing,
}

impl Coded for StepError {
    fn code(&self) -> &'static str {
        self.into()
    }
}
