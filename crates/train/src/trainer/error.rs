use crate::{ConfigError, StepError};
use rewire_graph::{Coded, GraphError, TensorSizeError};
use rewire_graph_rewrite::RewriteError;
use rewire_runtime::{RunError, RuntimeError};
use strum::IntoStaticStr;
use thiserror::Error;

/// What reading a batch may fail with.
pub type DataError = Box<dyn std::error::Error + Send + Sync>;

/// Why training does not begin, or does not go on.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "train.")]
#[non_exhaustive]
pub enum TrainError {
    /// The configuration is not good.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no step of the objective.
    #[error(transparent)]
    Step(Box<StepError>),
    /// The step cannot be rewritten.
    #[error(transparent)]
    Rewrite(Box<RewriteError>),
    /// The step cannot be loaded.
    #[error(transparent)]
    Load(Box<RuntimeError>),
    /// A run failed.
    #[error(transparent)]
    Run(Box<RunError>),
    /// A tensor has another size than its shape says.
    #[error(transparent)]
    Size(#[from] TensorSizeError),
    /// A parameter has no value to begin with, or another shape.
    #[error("the parameter `{name}` is {expected} in the model, but {actual} in what training begins with")]
    Parameter {
        /// Its name.
        name: String,
        /// Its shape in the model.
        expected: String,
        /// What there is.
        actual: String,
    },
    /// The system refuses the thread that reads the batches.
    #[error("cannot start a thread: allow more processes (`ulimit -u`, or the limit of the container) or more memory")]
    Thread(#[source] std::io::Error),
    /// The batches could not be read.
    #[error("cannot read the training data")]
    Data(#[source] DataError),
    /// There is nothing to train on.
    #[error("the training data has no batch: expected at least {expected}")]
    Empty {
        /// Batches of a step.
        expected: usize,
    },
    /// The loss is no number, or a parameter has elements that are none.
    #[error("{}: lower the learning rate, or limit gradients by `grad_clipping`", diverged(*step, *loss, parameter.as_deref()))]
    Diverged {
        /// The step, from 1.
        step: u64,
        /// The loss.
        loss: f64,
        /// The first parameter, as the model reads them, with an element that is not finite.
        parameter: Option<String>,
    },
    /// No scale of the loss has gradients that are finite.
    #[error(
        "{steps} steps up to step {step} overflowed one after the other: lower the learning rate, or train without `mixed_precision`"
    )]
    Overflow {
        /// The step, from 1.
        step: u64,
        /// How many.
        steps: u64,
    },
    /// The tensors of a step do not fit in the limit of memory.
    #[error(
        "the tensors of a step take {needed} bytes with all computed again that saves memory, more than `memory_limit`, {limit}: \
         train with smaller batches or a higher limit"
    )]
    Memory {
        /// The limit.
        limit: u64,
        /// What they take.
        needed: u64,
    },
    /// A checkpoint is of another training.
    #[error("the checkpoint has no `{name}` of {expected}: it is of another model or configuration")]
    Checkpoint {
        /// The state.
        name: String,
        /// Its shape.
        expected: String,
    },
}

/// What went bad.
fn diverged(step: u64, loss: f64, parameter: Option<&str>) -> String {
    match parameter {
        Some(name) if loss.is_finite() => {
            format!("step {step} left `{name}` with elements that are not finite, though the loss was {loss} still")
        }
        Some(name) => format!("the loss of step {step} is {loss}; `{name}` is the first parameter that is not finite"),
        None => format!("the loss of step {step} is {loss}; all parameters are finite"),
    }
}

impl From<GraphError> for TrainError {
    fn from(error: GraphError) -> Self {
        StepError::from(error).into()
    }
}

impl From<StepError> for TrainError {
    fn from(error: StepError) -> Self {
        Self::Step(Box::new(error))
    }
}

impl From<RewriteError> for TrainError {
    fn from(error: RewriteError) -> Self {
        Self::Rewrite(Box::new(error))
    }
}

impl From<RuntimeError> for TrainError {
    fn from(error: RuntimeError) -> Self {
        Self::Load(Box::new(error))
    }
}

impl From<RunError> for TrainError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

impl Coded for TrainError {
    fn code(&self) -> &'static str {
        self.into()
    }
}
