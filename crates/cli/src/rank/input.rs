use super::jsonl::Lines;
#[cfg(feature = "parquet")]
use super::parquet::{ColumnFault, Rows};
use crate::demo;
use rewire::rank::{Batch, JsonError, RequestError, Schema};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor};
use std::path::Path;
use thiserror::Error;

/// Bytes of a line, of a row of a table, and of a file of titles, at most.
pub const LARGEST: u64 = 1 << 28;

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
    #[cfg(feature = "parquet")]
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
    #[error("{file} holds no users: expected JSON Lines or Parquet")]
    Empty {
        /// The file.
        file: String,
    },
}

/// Requests of a file, one after another.
pub trait Requests: Send {
    /// Adds requests to a batch until they and their entries are so many together; false at the end of the file. Requests before an
    /// error are added.
    fn read(&mut self, batch: &mut Batch, entries: usize) -> Result<bool, InputError>;

    /// How much was read and how much there is, where that is known.
    fn progress(&self) -> Option<Progress>;
}

/// How far a file is read.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes or rows that were read.
    pub done: u64,
    /// Bytes or rows in all.
    pub all: u64,
}

/// Name of a data file for messages.
pub fn title(data: Option<&Path>) -> String {
    match data {
        None => "the data in the program".into(),
        Some(path) if path == Path::new("-") => "stdin".into(),
        Some(path) => path.display().to_string(),
    }
}

/// Opens JSON Lines or Parquet, told apart by the first bytes.
pub fn open(data: Option<&Path>, schema: &Schema) -> Result<Box<dyn Requests>, InputError> {
    let name = title(data);
    let Some(path) = data else {
        let length = demo::INTERACTIONS.len() as u64;
        return Ok(Box::new(Lines::new(name, Cursor::new(demo::INTERACTIONS), Some(length))));
    };
    if path == Path::new("-") {
        return Ok(Box::new(Lines::new(name, BufReader::with_capacity(1 << 16, io::stdin()), None)));
    }
    let unread = |source| InputError::Read { file: name.clone(), source };
    let file = File::open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    if reader.fill_buf().map_err(unread)?.starts_with(b"PAR1") {
        return rows(name, path, schema);
    }
    let length = metadata.is_file().then_some(metadata.len());
    Ok(Box::new(Lines::new(name, reader, length)))
}

#[cfg(feature = "parquet")]
fn rows(name: String, path: &Path, schema: &Schema) -> Result<Box<dyn Requests>, InputError> {
    Ok(Box::new(Rows::open(name, path, schema)?))
}

#[cfg(not(feature = "parquet"))]
fn rows(file: String, _: &Path, _: &Schema) -> Result<Box<dyn Requests>, InputError> {
    Err(InputError::Table { file, reason: "the program is built without the feature `parquet`".to_owned() })
}
