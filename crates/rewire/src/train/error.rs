use crate::rank::RankError;
use rewire_features::{EncodeError, Problems};
use rewire_graph::{Coded, TensorSizeError};
use rewire_hstu::models::ModelError;
use rewire_train::{ConfigError, TrainError};
use strum::IntoStaticStr;
use thiserror::Error;

/// Why users cannot be trained on.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "example.")]
#[non_exhaustive]
pub enum ExampleError {
    /// It is not known what became of a user's candidates.
    #[error("user `{user}` has candidates without `labels`: expected an entry a candidate")]
    Unlabelled {
        /// The user.
        user: String,
    },
    /// There is nothing to learn from.
    #[error("none of {users} users has a candidate: expected at least one")]
    Empty {
        /// Users of the batch.
        users: usize,
    },
    /// The batch is too large for a tensor.
    #[error("cannot make the model's inputs")]
    Size(#[from] TensorSizeError),
}

impl Coded for ExampleError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

/// Why a ranking model is not trained.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "rank_train.")]
#[non_exhaustive]
pub enum RankTrainError {
    /// The model cannot be traced.
    #[error("cannot trace the model")]
    Trace(#[source] Box<ModelError>),
    /// The model and its weights are not good, or it cannot be ranked with.
    #[error(transparent)]
    Rank(Box<RankError>),
    /// The pipeline has options that are not supported.
    #[error("the pipeline has values that cannot be used:\n{0}")]
    Pipeline(Problems),
    /// The rows of a table are not what the pipeline reads.
    #[error(transparent)]
    Columns(#[from] EncodeError),
    /// There is no memory for the parameters that the training begins with.
    #[error("cannot draw the parameters that the training begins with")]
    Initial(#[from] TensorSizeError),
    /// A step failed.
    #[error(transparent)]
    Train(Box<TrainError>),
    /// A checkpoint cannot be read or written.
    #[error("{file} is not a good checkpoint: {reason}")]
    Checkpoint {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
}

impl From<ModelError> for RankTrainError {
    fn from(error: ModelError) -> Self {
        Self::Trace(Box::new(error))
    }
}

impl From<RankError> for RankTrainError {
    fn from(error: RankError) -> Self {
        Self::Rank(Box::new(error))
    }
}

impl From<ConfigError> for RankTrainError {
    fn from(error: ConfigError) -> Self {
        TrainError::from(error).into()
    }
}

impl From<TrainError> for RankTrainError {
    fn from(error: TrainError) -> Self {
        Self::Train(Box::new(error))
    }
}

impl Coded for RankTrainError {
    fn code(&self) -> &'static str {
        self.into()
    }
}
