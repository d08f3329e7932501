//! Requests from files, with copied columns.

mod carried;
mod columns;
mod csv;
mod error;
mod fault;
mod jsonl;
#[cfg(feature = "parquet")]
pub mod parquet;
mod reader;

pub use carried::{Carry, Cell, Kind, Value};
pub use error::InputError;
pub use fault::ColumnFault;
pub use reader::{Chunk, Chunks, Reading, Rejected, Sizes, chunks};

use crate::demo;
use csv::Records;
use jsonl::Lines;
#[cfg(feature = "parquet")]
use parquet::Rows;
use rewire::graph::similar_name;
use rewire::rank::{Batch, ExpectedRequests, Schema};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor};
use std::path::Path;

/// Maximum bytes of a line, of a row of a table, and of a file of titles.
pub const LARGEST: u64 = 1 << 28;

/// Requests of a file, in order.
pub trait Requests: Send {
    /// Adds requests to a batch until they and their entries reach a number; false at the end of the file. Requests before an error
    /// are added. After an error of a row ([`InputError::is_of_row`]) the next call continues with the next row.
    fn read(&mut self, batch: &mut Batch, entries: usize) -> Result<bool, InputError>;

    /// Removes and returns the cells of the added requests, by copied column.
    fn take_carried(&mut self) -> Vec<Vec<Cell>>;

    /// The columns to copy, with their types so far.
    fn carry(&self) -> &Carry;

    /// Lines or rows that were read.
    fn row(&self) -> u64;

    /// Skips this many lines or rows.
    fn skip(&mut self, rows: u64) -> Result<(), InputError>;

    /// The row of the last row error, if it is text.
    fn text(&self) -> Option<Cow<'_, str>>;

    /// How much was read and the total, if known.
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
        None => "the built-in data".into(),
        Some(path) if path == Path::new("-") => "stdin".into(),
        Some(path) => path.display().to_string(),
    }
}

/// The error for a column to copy that is not among the columns `names`.
fn missing_column<'a>(column: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let similar = similar_name(column, names).map(|name| format!(" (is it `{name}`?)"));
    format!("the column `{column}`{} is missing", similar.unwrap_or_default())
}

/// Opens JSON Lines, CSV or Parquet: CSV by the file extension, Parquet by the first bytes.
pub fn open(data: Option<&Path>, schema: &Schema) -> Result<Box<dyn Requests>, InputError> {
    open_with(data, schema, Carry::default())
}

/// [`open`], with columns to copy.
pub fn open_with(data: Option<&Path>, schema: &Schema, carry: Carry) -> Result<Box<dyn Requests>, InputError> {
    let name = title(data);
    let Some(path) = data else {
        let length = demo::INTERACTIONS.len() as u64;
        return Ok(Box::new(Lines::new(name, Cursor::new(demo::INTERACTIONS), Some(length), carry)));
    };
    if path == Path::new("-") {
        return Ok(Box::new(Lines::new(name, BufReader::with_capacity(1 << 16, io::stdin()), None, carry)));
    }
    let unread = |source| InputError::Read { file: name.clone(), source };
    let file = File::open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    if reader.fill_buf().map_err(unread)?.starts_with(b"PAR1") {
        return rows(name, path, schema, carry);
    }
    let length = metadata.is_file().then_some(metadata.len());
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv")) {
        return Ok(Box::new(Records::new(name, reader, length, schema, carry)?));
    }
    Ok(Box::new(Lines::new(name, reader, length, carry)))
}

/// The first requests of a file, for which kernels are compiled early; `None` for a stream, which can be read only once.
pub fn expected(data: Option<&Path>) -> Option<ExpectedRequests> {
    let data = data.map(Path::to_owned);
    data.as_deref().is_none_or(Path::is_file).then(|| {
        ExpectedRequests::new(move |batch| {
            // The command itself reports errors of the file.
            let input = open(data.as_deref(), batch.schema());
            let read = input.and_then(|mut input| reader::first(&mut *input, batch));
            drop(read);
        })
    })
}

#[cfg(feature = "parquet")]
fn rows(name: String, path: &Path, schema: &Schema, carry: Carry) -> Result<Box<dyn Requests>, InputError> {
    Ok(Box::new(Rows::open(name, path, schema, carry)?))
}

#[cfg(not(feature = "parquet"))]
fn rows(file: String, _: &Path, _: &Schema, _: Carry) -> Result<Box<dyn Requests>, InputError> {
    Err(InputError::Table { file, reason: "the program is built without the feature `parquet`".to_owned() })
}
