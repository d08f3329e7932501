use super::ModelVersion;
use crate::weights::WeightsError;
use rewire_graph::Coded;
use rewire_runtime::RuntimeError;
use rewire_tables::MapError;
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a delta cannot be read, written or applied. The model is then unchanged.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "delta.")]
#[non_exhaustive]
pub enum DeltaError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file was read, but it is damaged or does not follow the version of the model.
    #[error("{} cannot be applied", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<DeltaError>,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The bytes are not a delta.
    #[error("it is not a delta")]
    NotDelta,
    /// The delta was written by a newer version of this program.
    #[error("it is a delta of format {format}: this program reads format {newest}")]
    Newer {
        /// Its format.
        format: String,
        /// The format that this program reads.
        newest: &'static str,
    },
    /// The bytes differ from those that were written.
    #[error("it is damaged: its bytes do not match its hash")]
    Damaged,
    /// The content is invalid.
    #[error("`{name}`: {reason}")]
    Content {
        /// The tensor or the entry of the metadata.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The model has no version.
    #[error("the model has no version: `rewire train --delta-every` writes models that deltas change")]
    NoVersion,
    /// The delta belongs to another training.
    #[error("it belongs to another training: it follows version {before}, but the model has version {version}")]
    Foreign {
        /// The version that it follows.
        before: ModelVersion,
        /// The version of the model.
        version: ModelVersion,
    },
    /// Deltas between the model and this one are missing.
    #[error("it is delta {number}, but the model needs delta {needed} first")]
    Missing {
        /// The number of the delta.
        number: u64,
        /// The number of the next delta of the model.
        needed: u64,
    },
    /// The model already contains the delta.
    #[error("it is delta {number}, but the model already contains all deltas up to {latest}")]
    Applied {
        /// The number of the delta.
        number: u64,
        /// The number of the latest delta in the model.
        latest: u64,
    },
    /// Another update of the model is in progress.
    #[error("another delta is being applied to the model: apply one after the other")]
    Busy,
    /// The delta has ids for a table that does not grow in the model.
    #[error("it changes the ids of the table `{table}`, which has no ids in the model")]
    Ids {
        /// The table.
        table: String,
    },
    /// The ids of a table do not fit those of the model.
    #[error("it does not fit the ids of the table `{table}`")]
    IdChanges {
        /// The table.
        table: String,
        /// The reason.
        source: MapError,
    },
    /// The model does not have a tensor of the delta.
    #[error("the model has no tensor `{name}`")]
    Unknown {
        /// The tensor.
        name: String,
    },
    /// The tensors do not fit the model.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A file of tensors is invalid.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

impl DeltaError {
    pub(super) fn content(name: &str, reason: impl ToString) -> Self {
        Self::Content { name: name.to_owned(), reason: reason.to_string() }
    }
}

impl Coded for DeltaError {
    fn code(&self) -> &'static str {
        match self {
            Self::File { source, .. } => source.code(),
            Self::Runtime(source) => source.code(),
            Self::Weights(source) => source.code(),
            other => other.into(),
        }
    }
}
