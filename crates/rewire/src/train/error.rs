use crate::rank::RankError;
use rewire_features::{EncodeError, Problems};
use rewire_graph::{Coded, TensorSizeError};
use rewire_hstu::models::ModelError;
use rewire_train::{ConfigError, TrainError};
use strum::IntoStaticStr;
use thiserror::Error;

/// Why users cannot be used for training.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "example.")]
#[non_exhaustive]
pub enum ExampleError {
    /// A user has no labels.
    #[error("user `{user}` has candidates without `labels`: expected one entry per candidate")]
    Unlabelled {
        /// The user.
        user: String,
    },
    /// The batch has no candidates to train on.
    #[error("none of {users} users has a candidate: expected at least one")]
    Empty {
        /// Users of the batch.
        users: usize,
    },
    /// The batch is too large for a tensor.
    #[error("cannot create the model's inputs")]
    Size(#[from] TensorSizeError),
}

impl Coded for ExampleError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

/// Why a ranking model cannot be trained.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "rank_train.")]
#[non_exhaustive]
pub enum RankTrainError {
    /// The model cannot be traced.
    #[error("cannot trace the model")]
    Trace(#[source] Box<ModelError>),
    /// The model or its weights are invalid, or it cannot rank.
    #[error(transparent)]
    Rank(Box<RankError>),
    /// The pipeline has unsupported options.
    #[error("the pipeline has values that cannot be used:\n{0}")]
    Pipeline(Problems),
    /// The rows of a table do not match the pipeline.
    #[error(transparent)]
    Columns(#[from] EncodeError),
    /// There is not enough memory for the initial parameters.
    #[error("cannot initialize the parameters of the training")]
    Initial(#[from] TensorSizeError),
    /// A step failed.
    #[error(transparent)]
    Train(Box<TrainError>),
    /// A checkpoint cannot be read or written.
    #[error("{file} is not a valid checkpoint: {reason}")]
    Checkpoint {
        /// The file.
        file: String,
        /// The reason.
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
