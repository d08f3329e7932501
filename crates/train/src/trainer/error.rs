use crate::{ConfigError, StepError};
use rewire_distributed::CollectiveError;
use rewire_graph::{Coded, GraphError, TensorSizeError};
use rewire_graph_rewrite::RewriteError;
use rewire_runtime::{RunError, RuntimeError};
use rewire_tables::MapError;
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// An error from reading a batch.
pub type DataError = Box<dyn std::error::Error + Send + Sync>;

/// Why a training failed.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "train.")]
#[non_exhaustive]
pub enum TrainError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The objective has no training step.
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
    /// A collective operation failed.
    #[error(transparent)]
    Ranks(#[from] CollectiveError),
    /// An id exceeds the rows of its table.
    #[error("an id is {id}, but its table has {rows} rows: expected 0 to {rows} exclusive")]
    Id {
        /// The id.
        id: i64,
        /// The number of rows of the table.
        rows: usize,
    },
    /// The ids of a checkpoint are invalid.
    #[error("the ids of the growing table `{name}` are invalid in the checkpoint")]
    Ids {
        /// The name of the map.
        name: String,
        /// The cause.
        #[source]
        source: MapError,
    },
    /// Steps with raw ids were prepared by several preparers, or submitted out of order.
    #[error(
        "expected step {expected} of the growing table `{name}`, got step {actual}: submit the steps of one preparer in their order"
    )]
    Order {
        /// The name of the map.
        name: String,
        /// The next step.
        expected: u64,
        /// The submitted step.
        actual: u64,
    },
    /// A tensor has another size than its shape.
    #[error(transparent)]
    Size(#[from] TensorSizeError),
    /// A parameter has no initial value, or one of the wrong shape.
    #[error("the parameter `{name}` is {expected} in the model, but {actual} in the initial parameters")]
    Parameter {
        /// The name of the parameter.
        name: String,
        /// Its shape in the model.
        expected: String,
        /// The actual shape.
        actual: String,
    },
    /// The operating system cannot start the thread that reads batches.
    #[error("cannot start a thread: allow more processes (`ulimit -u`, or the limit of the container) or more memory")]
    Thread(#[source] std::io::Error),
    /// A state could not be written.
    #[error("cannot write the training")]
    Write(#[source] std::io::Error),
    /// The batches could not be read.
    #[error("cannot read the training data")]
    Data(#[source] DataError),
    /// There is no data.
    #[error("the training data has no batch: expected at least {expected}")]
    Empty {
        /// Batches per step.
        expected: usize,
    },
    /// The data has too few batches for one step.
    #[error(
        "the training data has {batches} batches for the whole training, fewer than the {expected} of one step: lower \
         `gradient_accumulation_steps` or `batch_size`, or raise `epochs`"
    )]
    NoStep {
        /// Number of batches in all epochs.
        batches: usize,
        /// Batches per step.
        expected: usize,
    },
    /// The loss or a parameter is NaN or infinite.
    #[error("{}: lower the learning rate, or limit gradients by `grad_clipping`", diverged(*step, *loss, parameter.as_deref()))]
    Diverged {
        /// The step, from 1.
        step: u64,
        /// The loss.
        loss: f64,
        /// The first parameter with a non-finite element, in the model's order.
        parameter: Option<String>,
    },
    /// Gradients overflowed in too many successive steps, whatever the scale of the loss.
    #[error(
        "{steps} steps up to step {step} overflowed in a row: lower the learning rate, or train without `mixed_precision`"
    )]
    Overflow {
        /// The step, from 1.
        step: u64,
        /// The number of successive overflows.
        steps: u64,
    },
    /// Tables cannot be stored in files of a folder.
    #[error("cannot keep tables in {}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The tensors of a step exceed the memory limit.
    #[error(
        "the tensors of a step take {needed} bytes with all memory-saving recomputation, more than `memory_limit`, {limit}: \
         train with smaller batches or a higher limit"
    )]
    Memory {
        /// The limit.
        limit: u64,
        /// The required memory.
        needed: u64,
    },
    /// A checkpoint belongs to another training.
    #[error("the checkpoint has no `{name}` of {expected}: it belongs to another model or configuration")]
    Checkpoint {
        /// The state.
        name: String,
        /// The expected shape.
        expected: String,
    },
}

/// Describes the divergence.
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
