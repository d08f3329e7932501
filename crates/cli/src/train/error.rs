use crate::error::CliError;
use rewire::train::{ConfigError, RankTrainError, TrainError};
use rewire::weights::WeightsError;
use std::io;
use thiserror::Error;

/// Why a training failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainFailed {
    #[error("cannot read {file}")]
    Read { file: String, source: io::Error },
    #[error("cannot write {file}")]
    Write { file: String, source: io::Error },
    #[error("{file} is not a good training configuration")]
    Config { file: String, source: ConfigError },
    #[error("{file} is of a training with another {key}: go on with the same, or begin in another folder")]
    Other { file: String, key: String },
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Model(#[from] RankTrainError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl From<TrainFailed> for CliError {
    fn from(error: TrainFailed) -> Self {
        Self::Train(Box::new(error))
    }
}

impl From<TrainError> for CliError {
    fn from(error: TrainError) -> Self {
        TrainFailed::from(error).into()
    }
}
