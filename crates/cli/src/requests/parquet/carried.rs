//! Values of a column, and columns that are carried along.

use super::super::{Cell, ColumnFault, Value};
use super::cells::Levels;
use super::columns::CarriedColumn;
use super::guard::guarded;
use super::pages::{Content, Pages};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::metadata::RowGroupMetaData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads the values of a column row by row.
pub struct Leaf {
    /// Position among the columns of the file.
    position: usize,
    /// Integers are unsigned.
    unsigned: bool,
    /// The column in the row group that is read.
    reader: Option<ColumnReader>,
    levels: Levels,
    taken: Arc<AtomicU64>,
}

impl Leaf {
    pub fn new(position: usize, unsigned: bool) -> Self {
        Self { position, unsigned, reader: None, levels: Levels::default(), taken: Arc::default() }
    }

    /// Continues in a row group.
    pub fn begin(&mut self, content: &Content, group: &RowGroupMetaData) -> Result<(), String> {
        let position = self.position;
        self.reader = Some(guarded(|| {
            let pages = Pages::of_column(content, group, position, self.taken.clone())?;
            Ok(get_column_reader(group.column(position).column_descr_ptr(), Box::new(pages)))
        })?);
        Ok(())
    }

    /// The levels of the row that was read last.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The values of the next row, without nulls; `None` at the end of the row group.
    pub fn next(&mut self) -> Result<Option<Vec<Value>>, ColumnFault> {
        self.taken.store(0, Ordering::Relaxed);
        let (levels, unsigned) = (&mut self.levels, self.unsigned);
        match &mut self.reader {
            Some(ColumnReader::BoolColumnReader(reader)) => values(levels, reader, |value| Ok(Value::Bool(value))),
            Some(ColumnReader::Int32ColumnReader(reader)) => values(levels, reader, |value: i32| {
                Ok(Value::Integer(if unsigned { i64::from(value as u32) } else { value.into() }))
            }),
            Some(ColumnReader::Int64ColumnReader(reader)) => {
                values(levels, reader, |value| match unsigned && value < 0 {
                    true => Err(ColumnFault::NoInteger { value: (value as u64).to_string() }),
                    false => Ok(Value::Integer(value)),
                })
            }
            Some(ColumnReader::FloatColumnReader(reader)) => {
                values(levels, reader, |value| Ok(Value::Float(value.into())))
            }
            Some(ColumnReader::DoubleColumnReader(reader)) => values(levels, reader, |value| Ok(Value::Float(value))),
            Some(ColumnReader::ByteArrayColumnReader(reader)) => values(levels, reader, |value: ByteArray| {
                String::from_utf8(value.data().to_vec()).map(Value::Text).map_err(|_| ColumnFault::NotUtf8)
            }),
            None => Ok(None),
            _ => Err(ColumnFault::Unreadable { reason: "it is of another type".into() }),
        }
    }
}

/// Reads a column that is carried along row by row.
pub struct CarriedCells {
    pub column: CarriedColumn,
    leaf: Leaf,
}

impl CarriedCells {
    pub fn new(column: CarriedColumn) -> Self {
        let leaf = Leaf::new(column.position, column.unsigned);
        Self { column, leaf }
    }

    /// Continues in a row group.
    pub fn begin(&mut self, content: &Content, group: &RowGroupMetaData) -> Result<(), String> {
        self.leaf.begin(content, group)
    }

    /// Reads the next row, `None` at the end of the row group.
    pub fn next(&mut self) -> Result<Option<Cell>, ColumnFault> {
        let Some(mut values) = self.leaf.next()?.map(Vec::into_iter) else { return Ok(None) };
        // A column that has no nulls has no levels.
        let Some(entry) = self.column.entry else { return Ok(Some(Cell::One(values.next().unwrap_or(Value::Null)))) };
        let entries = self.leaf.levels().definitions.iter().filter(|level| **level >= entry);
        let value = |level: &i16| if *level == self.column.value { values.next() } else { None };
        Ok(Some(Cell::Each(entries.map(value).map(|value| value.unwrap_or(Value::Null)).collect())))
    }
}

/// The values of the next row, without nulls; `None` at the end.
fn values<T: DataType>(
    levels: &mut Levels,
    reader: &mut ColumnReaderImpl<T>,
    convert: impl Fn(T::T) -> Result<Value, ColumnFault>,
) -> Result<Option<Vec<Value>>, ColumnFault> {
    let mut stored = Vec::new();
    let found = levels.row(reader, &mut stored)?;
    let values: Vec<Value> = stored.into_iter().map(convert).collect::<Result<_, _>>()?;
    Ok(found.then_some(values))
}
