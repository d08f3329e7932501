use super::ColumnFault;
use rewire::rank::{JsonError, RequestError};
use std::io;
use thiserror::Error;

/// Why requests could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file does not open, or reading it fails.
    #[error("cannot read {file}")]
    Read {
        /// Its name.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The system refuses the thread that reads.
    #[error("cannot start a thread: allow more processes (`ulimit -u`, or the limit of the container) or more memory")]
    Thread(#[source] io::Error),
    /// A line is no request.
    #[error("{file}:{line}")]
    Line {
        /// The file.
        file: String,
        /// From 1.
        line: u64,
        /// Why.
        source: Box<JsonError>,
    },
    /// A line takes too much memory.
    #[error("{file}:{line}: the line is longer than {limit} bytes")]
    LongLine {
        /// The file.
        file: String,
        /// From 1.
        line: u64,
        /// The most bytes that a line may have.
        limit: u64,
    },
    /// A column of a table cannot be read any further.
    #[error("{file}, row {row}: `{column}` {fault}")]
    Column {
        /// The file.
        file: String,
        /// From 1.
        row: u64,
        /// The column.
        column: String,
        /// Why.
        fault: ColumnFault,
    },
    /// A row has another number of fields than the header.
    #[error("{file}, row {row} has {actual} fields: expected {expected}, as in the header")]
    Fields {
        /// The file.
        file: String,
        /// From 1.
        row: u64,
        /// Number of fields.
        actual: u64,
        /// Number of fields of the header.
        expected: u64,
    },
    /// A row of a table is no request of the model.
    #[error("{file}, row {row}")]
    Row {
        /// The file.
        file: String,
        /// From 1.
        row: u64,
        /// Why.
        source: Box<RequestError>,
    },
    /// A table as a whole cannot be read.
    #[error("{file}: {reason}")]
    Table {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// There is no user in the file.
    #[error("{file} holds no users: expected JSON Lines, CSV or Parquet")]
    Empty {
        /// The file.
        file: String,
    },
}

impl InputError {
    /// True for what is wrong with one row alone: those after it can be read.
    pub fn is_of_row(&self) -> bool {
        match self {
            Self::Line { .. } | Self::Row { .. } | Self::Fields { .. } => true,
            Self::Column { fault, .. } => fault.is_of_value(),
            _ => false,
        }
    }

    /// The line or row that it is about, from 1.
    pub fn row(&self) -> Option<u64> {
        match self {
            Self::Line { line: row, .. }
            | Self::LongLine { line: row, .. }
            | Self::Column { row, .. }
            | Self::Row { row, .. }
            | Self::Fields { row, .. } => Some(*row),
            _ => None,
        }
    }
}
