use crate::ConfigError;
use rewire_graph::{Coded, DifferentiateError, GraphError};
use strum::IntoStaticStr;
use thiserror::Error;

/// Why there is no training step of an objective.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "step.")]
#[non_exhaustive]
pub enum StepError {
    /// The graph is not good.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An optimizer is not good.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The gradient of something does not exist.
    #[error(transparent)]
    Differentiate(#[from] DifferentiateError),
    /// The loss is no number.
    #[error("the output `{name}` is no loss: expected an f32 of one element, got {actual}")]
    Loss {
        /// Its name.
        name: String,
        /// What it is.
        actual: String,
    },
    /// A table cannot be trained by rows.
    #[error("the table `{name}` {reason}: leave it out of the tables, then all of it is updated in every step")]
    Table {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A name that the graph does not have is frozen or a table.
    #[error("the model has no parameter of floats `{name}`: it has {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Names that there are.
        known: String,
    },
    /// A parameter, input or output of the model has a name that steps use.
    #[error("the model's `{name}` begins with `{prefix}`, which names values of training: give it another name")]
    Reserved {
        /// The name.
        name: String,
        /// The beginning that models may not use.
        prefix: &'static str,
    },
    /// Nothing learns.
    #[error("no parameter learns: all are frozen, or the loss depends on none of them")]
    Nothing,
}

impl Coded for StepError {
    fn code(&self) -> &'static str {
        self.into()
    }
}
