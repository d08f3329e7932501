use crate::continued::Unread;
use crate::error::CliError;
use std::io;
use thiserror::Error;

/// Why predictions cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PredictError {
    #[error("{file}: expected a name that ends in .jsonl, .csv or .parquet")]
    Format { file: String },
    #[cfg(not(feature = "parquet"))]
    #[error("{file}: the program is built without the feature `parquet`")]
    NoParquet { file: String },
    #[error("{file} is not a regular file: predictions replace a file by renaming a new one over it")]
    NoFile { file: String },
    #[error("--columns: `{column}` is a column of the output already")]
    Column { column: String },
    #[error("cannot read {file}")]
    Read { file: String, source: io::Error },
    #[error("cannot write {file}")]
    Write { file: String, source: io::Error },
    #[error("{file} is being written by another run")]
    Busy { file: String },
    #[error(
        "{file} belongs to a run with {key} `{was}`, not `{is}`: resume with the same {key}, or start over without --resume"
    )]
    Other { file: String, key: &'static str, was: String, is: String },
    #[error("{file} {reason}: start over without --resume")]
    Damaged { file: String, reason: String },
    #[error("all {rows} rows were rejected, the first because {reason}: {file} is unchanged, {rejects} has the rows")]
    AllRejected { file: String, rejects: String, rows: u64, reason: String },
    #[error(
        "--items: the model computes a vector for every candidate: expected a matching model, which computes one for every user"
    )]
    NoUsers,
    #[error("an imported model has no built-in data: pass a table by --data")]
    NoData,
    #[error("--items: a row of the catalogue is an item: name the column of items by --item-column")]
    NoItemColumn,
    #[error("--item-column is for imported models: candidates of requests have their items in their first feature")]
    ItemColumn,
    #[error("--items: {file} holds no candidates")]
    NoItems { file: String },
    #[error("cannot start a thread: allow more processes (`ulimit -u`, or the limit of the container) or more memory")]
    Thread(#[source] io::Error),
    #[error("cannot encode rows of {file}: {reason}")]
    Encode { file: String, reason: String },
}

impl PredictError {
    /// True if the arguments themselves are invalid.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Format { .. } | Self::Column { .. } | Self::NoData | Self::NoItemColumn | Self::ItemColumn)
    }
}

impl From<Unread> for PredictError {
    fn from(Unread { file, source }: Unread) -> Self {
        Self::Read { file, source }
    }
}

impl From<PredictError> for CliError {
    fn from(error: PredictError) -> Self {
        Self::Predict(Box::new(error))
    }
}
