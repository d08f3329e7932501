use crate::continued::Unread;
use crate::error::CliError;
use rewire::delta::DeltaError;
use rewire::graph::Coded;
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
    #[error("{file} is not a valid training configuration")]
    Config { file: String, source: ConfigError },
    #[error(
        "{file} belongs to a training with a different {key}: resume with the same {key}, or train into another folder"
    )]
    Other { file: String, key: &'static str },
    #[error(
        "{file} belongs to a training with {key} `{was}`, not `{is}`: resume with the same {key}, pass --allow-changes to continue with \
         different results, or train into another folder"
    )]
    Changed { file: String, key: &'static str, was: String, is: String },
    #[error("a pipeline has no built-in data: pass a table with features and labels by --data")]
    NoData,
    #[error("{option} is for the training of {kind}: leave it out")]
    OtherKind { option: &'static str, kind: &'static str },
    #[error("--resume needs --data in files: {file} cannot be read again")]
    Stream { file: String },
    #[error("{folder} is being written by another training: wait for its end, or train into another folder")]
    Busy { folder: String },
    #[error("{file} is not a list of evaluations: train into another folder, or remove the file")]
    Evaluations { file: String, source: serde_json::Error },
    #[error("--metric {metric} is not a metric of this model: expected one of {known}")]
    Metric { metric: String, known: String },
    #[error("--ranks starts ranks in one process, but MPI started this process: leave it out")]
    RanksTwice,
    #[error("the training was cancelled")]
    Cancelled,
    #[error("there are no ranks")]
    NoRanks,
    #[cfg(not(feature = "mpi"))]
    #[error(
        "MPI started this program as one of {ranks}, but it is built without MPI: build it with `--features mpi`, or train as ranks of \
         one process by --ranks"
    )]
    NoMpi { ranks: usize },
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Delta(#[from] DeltaError),
    #[error(transparent)]
    Model(#[from] RankTrainError),
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl TrainFailed {
    /// True if the arguments themselves are invalid.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NoData | Self::OtherKind { .. } | Self::Stream { .. } | Self::Metric { .. } | Self::RanksTwice => {
                true
            }
            #[cfg(not(feature = "mpi"))]
            Self::NoMpi { .. } => true,
            _ => false,
        }
    }
}

/// Why a training failed. If a [`Listener`](super::Listener) ended it, a cause is the error of the listener.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct TrainingError(Box<CliError>);

impl From<CliError> for TrainingError {
    fn from(error: CliError) -> Self {
        Self(Box::new(error))
    }
}

impl Coded for TrainingError {
    fn code(&self) -> &'static str {
        match &*self.0 {
            CliError::Train(failed) => match &**failed {
                TrainFailed::Model(error) => error.code(),
                TrainFailed::Train(error) => error.code(),
                TrainFailed::Config { source, .. } => source.code(),
                _ => "train.usage",
            },
            CliError::Rank(error) => error.code(),
            _ => "train.files",
        }
    }
}

impl From<Unread> for TrainFailed {
    fn from(Unread { file, source }: Unread) -> Self {
        Self::Read { file, source }
    }
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
