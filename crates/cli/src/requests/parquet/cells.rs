//! Rows of one column.

use super::super::columns::{Column, Role};
use super::super::{ColumnFault, LARGEST};
use super::MOST_VALUES;
use super::columns::LeafColumn;
use super::guard::guarded;
use super::pages::{Content, Pages};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::metadata::RowGroupMetaData;
use rewire::rank::{User, whole};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a column row by row, and concatenates the values.
pub struct Cells {
    pub leaf: LeafColumn,
    /// The column in the current row group.
    reader: Option<ColumnReader>,
    levels: Levels,
    taken: Arc<AtomicU64>,
    /// The rows.
    pub column: Column,
}

/// The levels of rows read together.
#[derive(Default)]
pub struct Levels {
    pub definitions: Vec<i16>,
    pub repetitions: Vec<i16>,
}

impl Cells {
    pub fn new(leaf: LeafColumn) -> Self {
        let column = Column::new(leaf.role.clone());
        Self { leaf, reader: None, levels: Levels::default(), taken: Arc::default(), column }
    }

    /// Continues in a row group.
    pub fn begin(&mut self, content: &Content, group: &RowGroupMetaData) -> Result<(), String> {
        let position = self.leaf.position;
        self.reader = Some(guarded(|| {
            let pages = Pages::of_column(content, group, position, self.taken.clone())?;
            Ok(get_column_reader(group.column(position).column_descr_ptr(), Box::new(pages)))
        })?);
        Ok(())
    }

    /// Reads the next row. Returns its number of values; `None` at the end of the row group.
    pub fn next(&mut self) -> Result<Option<u64>, ColumnFault> {
        self.taken.store(0, Ordering::Relaxed);
        let (values, unsigned) = (&mut self.column.values, self.leaf.unsigned);
        let start = values.len();
        let mut texts = Vec::new();
        let found = match &mut self.reader {
            Some(ColumnReader::Int64ColumnReader(reader)) => self.levels.row(reader, values)?,
            Some(ColumnReader::Int32ColumnReader(reader)) => {
                let wide = |value: i32| Ok(if unsigned { i64::from(value as u32) } else { value.into() });
                self.levels.converted(reader, values, wide)?
            }
            Some(ColumnReader::FloatColumnReader(reader)) => {
                self.levels.converted(reader, values, |value| integer(value.into()))?
            }
            Some(ColumnReader::DoubleColumnReader(reader)) => self.levels.converted(reader, values, integer)?,
            Some(ColumnReader::ByteArrayColumnReader(reader)) => self.levels.row(reader, &mut texts)?,
            None => return Ok(None),
            _ => return Err(ColumnFault::Unreadable { reason: "it is of another type".into() }),
        };
        if !found {
            return Ok(None);
        }
        let entries = self.levels.definitions.len().max(values.len() - start);
        let taken = texts.iter().map(|text| text.len() as u64 / 8 + 1).sum::<u64>().max(entries as u64);
        match self.leaf.role {
            Role::User => self.close_user(start, texts.pop())?,
            _ => self.close(start)?,
        }
        Ok(Some(taken))
    }

    fn close_user(&mut self, start: usize, text: Option<ByteArray>) -> Result<(), ColumnFault> {
        let number = self.column.values.get(start).copied();
        self.column.values.truncate(start);
        self.column.users.push(match (text, number) {
            (Some(text), _) => User::Name(String::from_utf8(text.data().to_vec()).map_err(|_| ColumnFault::NotUtf8)?),
            (None, Some(number)) => User::Number(self.signed(number)?),
            (None, None) => return Err(ColumnFault::Null { expected: "a string or an integer" }),
        });
        Ok(())
    }

    fn close(&mut self, start: usize) -> Result<(), ColumnFault> {
        let read = self.column.values.get(start..).unwrap_or_default();
        read.iter().try_for_each(|&value| self.signed(value).map(drop))?;
        let LeafColumn { role, entry, value, .. } = &self.leaf;
        match (*entry, self.levels.definitions.as_slice()) {
            (None, _) if read.is_empty() => return Err(ColumnFault::Null { expected: "an integer" }),
            (None, _) => {}
            (Some(entry), [level]) if *level < entry - 1 && *role != Role::Labels => {
                return Err(ColumnFault::Null { expected: "a list of integers" });
            }
            // An empty list, or no labels.
            (Some(entry), [level]) if *level < entry => {}
            (Some(_), levels) if levels.iter().all(|level| level == value) => {}
            (Some(_), _) => return Err(ColumnFault::Null { expected: "an integer" }),
        }
        self.column.offsets.push(self.column.values.len() as i64);
        Ok(())
    }

    /// Rejects values beyond signed integers.
    fn signed(&self, value: i64) -> Result<i64, ColumnFault> {
        match self.leaf.unsigned && value < 0 {
            true => Err(ColumnFault::NoInteger { value: (value as u64).to_string() }),
            false => Ok(value),
        }
    }
}

impl Levels {
    /// Appends the values of the next row of a column; false at the end.
    pub fn row<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        values: &mut Vec<T::T>,
    ) -> Result<bool, ColumnFault> {
        self.rows(reader, 1, values).map(|rows| rows > 0)
    }

    /// Appends the values of up to this many rows of a column with consecutive levels; returns the number of rows.
    pub fn rows<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        most: usize,
        values: &mut Vec<T::T>,
    ) -> Result<usize, ColumnFault> {
        let Self { definitions, repetitions } = self;
        definitions.clear();
        repetitions.clear();
        let before = values.len();
        let read = || reader.read_records(most, Some(definitions), Some(repetitions), values);
        let (rows, ..) = guarded(read).map_err(|reason| ColumnFault::Unreadable { reason })?;
        match (values.len() - before) as u64 > MOST_VALUES {
            true => Err(ColumnFault::Large { limit: LARGEST }),
            false => Ok(rows),
        }
    }

    /// As [`Levels::row`], for integers with another storage type.
    fn converted<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        values: &mut Vec<i64>,
        convert: impl Fn(T::T) -> Result<i64, ColumnFault>,
    ) -> Result<bool, ColumnFault> {
        let mut stored = Vec::new();
        let found = self.row(reader, &mut stored)?;
        for value in stored {
            values.push(convert(value)?);
        }
        Ok(found)
    }
}

fn integer(value: f64) -> Result<i64, ColumnFault> {
    whole(value).ok_or_else(|| ColumnFault::NoInteger { value: value.to_string() })
}
