use super::ColumnFault;
use rewire::rank::{JsonError, RequestError};
use std::io;
use thiserror::Error;

/// Why requests could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file cannot be opened or read.
    #[error("cannot read {file}")]
    Read {
        /// Its name.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// The operating system cannot start the reading thread.
    #[error("cannot start a thread: allow more processes (`ulimit -u`, or the limit of the container) or more memory")]
    Thread(#[source] io::Error),
    /// A line is not a valid request.
    #[error("{file}:{line}")]
    Line {
        /// The file.
        file: String,
        /// From 1.
        line: u64,
        /// The cause.
        source: Box<JsonError>,
    },
    /// A line is too long.
    #[error("{file}:{line}: the line is longer than {limit} bytes")]
    LongLine {
        /// The file.
        file: String,
        /// From 1.
        line: u64,
        /// The maximum number of bytes of a line.
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
        /// The cause.
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
    /// A row of a table is not a valid request of the model.
    #[error("{file}, row {row}")]
    Row {
        /// The file.
        file: String,
        /// From 1.
        row: u64,
        /// The cause.
        source: Box<RequestError>,
    },
    /// A table as a whole cannot be read.
    #[error("{file}: {reason}")]
    Table {
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// The file contains no user.
    #[error("{file} holds no users: expected JSON Lines, CSV or Parquet")]
    Empty {
        /// The file.
        file: String,
    },
}

impl InputError {
    /// True if only one row is invalid: later rows can be read.
    pub fn is_of_row(&self) -> bool {
        match self {
            Self::Line { .. } | Self::Row { .. } | Self::Fields { .. } => true,
            Self::Column { fault, .. } => fault.is_of_value(),
            _ => false,
        }
    }

    /// The line or row of the error, from 1.
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
