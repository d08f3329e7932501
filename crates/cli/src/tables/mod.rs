//! Columns of any type by name, from files of tables.

mod csv;
mod items;
mod jsonl;
#[cfg(feature = "parquet")]
mod parquet;

pub use items::{Items, integer};
#[cfg(feature = "serve")]
pub use jsonl::nested;

use crate::requests::{InputError, Progress, Value, title};
use rewire::predict::OwnedCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// The value of a column in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Nested {
    One(Value),
    List(Vec<Nested>),
    Map(Vec<(Value, Value)>),
}

impl From<Nested> for OwnedCell {
    fn from(cell: Nested) -> Self {
        match cell {
            Nested::One(value) => value.into(),
            Nested::List(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Nested::Map(entries) => {
                Self::Map(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
            }
        }
    }
}

impl From<Value> for OwnedCell {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Int(i64::from(value)),
            Value::Integer(value) => Self::Int(value),
            Value::Float(value) => Self::Float(value),
            Value::Text(text) => Self::Text(text),
        }
    }
}

/// Rows that were read together.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub count: usize,
    /// Their cells, by requested column.
    pub columns: Vec<Vec<Nested>>,
}

/// The rows of a file, in order.
pub trait Table: Send {
    /// Reads up to this many rows; fewer only at the end of the file.
    fn read(&mut self, rows: usize) -> Result<Rows, InputError>;

    /// Skips up to this many rows, if the format allows it without reading them; fewer only at the end of the file.
    /// Returns their number.
    fn skip(&mut self, rows: u64) -> Result<u64, InputError>;

    /// How much was read and the total, if known.
    fn progress(&self) -> Option<Progress>;
}

/// Opens JSON Lines, CSV or Parquet for named columns: CSV by the file extension, Parquet by the first bytes. A missing column is an
/// error, except in JSON Lines, where it is null.
pub fn open(path: &Path, names: &[String]) -> Result<Box<dyn Table>, InputError> {
    let name = title(Some(path));
    if path == Path::new("-") {
        return Ok(Box::new(jsonl::Lines::new(name, BufReader::new(io::stdin()), None, names)));
    }
    let unread = |source| InputError::Read { file: name.clone(), source };
    let file = File::open(path).map_err(unread)?;
    let length = file.metadata().map_err(unread)?.len();
    let mut reader = BufReader::with_capacity(1 << 16, file);
    if reader.fill_buf().map_err(unread)?.starts_with(b"PAR1") {
        return of_parquet(name, path, names);
    }
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv")) {
        return Ok(Box::new(csv::Records::new(name, reader, length, names)?));
    }
    Ok(Box::new(jsonl::Lines::new(name, reader, Some(length), names)))
}

#[cfg(feature = "parquet")]
fn of_parquet(name: String, path: &Path, names: &[String]) -> Result<Box<dyn Table>, InputError> {
    Ok(Box::new(parquet::Groups::open(name, path, names)?))
}

#[cfg(not(feature = "parquet"))]
fn of_parquet(file: String, _: &Path, _: &[String]) -> Result<Box<dyn Table>, InputError> {
    Err(InputError::Table { file, reason: "the program is built without the feature `parquet`".to_owned() })
}

impl Rows {
    fn new(columns: usize) -> Self {
        Self { count: 0, columns: vec![Vec::new(); columns] }
    }

    fn push(&mut self, cells: impl IntoIterator<Item = Nested>) {
        self.columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
        self.count += 1;
    }
}
