//! Values of a column, and copied columns.

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
use std::vec;

/// Reads the values of a column row by row.
pub struct Leaf {
    /// Position among the columns of the file.
    position: usize,
    /// Integers are unsigned.
    unsigned: bool,
    /// The column in the current row group.
    reader: Option<ColumnReader>,
    /// The definition level of a present value.
    value: i16,
    levels: Levels,
    taken: Arc<AtomicU64>,
    /// Buffered values of the next rows, for a column without lists.
    ahead: vec::IntoIter<Result<Value, ColumnFault>>,
    /// Rows of the page after them, for a column without lists.
    rest: u64,
}

/// The maximum number of buffered values.
const AHEAD: u64 = 256;

/// The maximum number of rows that are skipped at once.
const SKIPPED: usize = 1 << 12;

impl Leaf {
    pub fn new(position: usize, unsigned: bool) -> Self {
        let (levels, taken, ahead) = (Levels::default(), Arc::default(), vec![].into_iter());
        Self { position, unsigned, reader: None, value: 0, levels, taken, ahead, rest: 0 }
    }

    /// Continues in a row group.
    pub fn begin(&mut self, content: &Content, group: &RowGroupMetaData) -> Result<(), String> {
        let column = group.column(self.position).column_descr_ptr();
        (self.value, self.rest) = (column.max_def_level(), 0);
        self.ahead = vec![].into_iter();
        self.reader = Some(guarded(|| {
            let pages = Pages::of_column(content, group, self.position, self.taken.clone())?;
            Ok(get_column_reader(column, Box::new(pages)))
        })?);
        Ok(())
    }

    /// The levels of the last row.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The values of the next row, without nulls; `None` at the end of the row group.
    pub fn next(&mut self) -> Result<Option<Vec<Value>>, ColumnFault> {
        self.taken.store(0, Ordering::Relaxed);
        match self.read(1)? {
            (0, _) => Ok(None),
            (_, values) => values.into_iter().collect::<Result<_, _>>().map(Some),
        }
    }

    /// The value of the next row of a column without lists; `None` at the end of the row group.
    pub fn one(&mut self) -> Result<Option<Value>, ColumnFault> {
        if self.ahead.as_slice().is_empty() {
            self.read_ahead()?;
        }
        self.ahead.next().transpose()
    }

    /// Skips rows of the row group. Their pages are not decoded if the page headers have row counts.
    pub fn skip(&mut self, rows: usize) -> Result<(), ColumnFault> {
        let buffered = self.ahead.by_ref().take(rows).count();
        let mut rest = rows - buffered;
        while rest > 0 {
            self.taken.store(0, Ordering::Relaxed);
            let skipped = self.skip_records(rest.min(SKIPPED))?;
            if skipped == 0 {
                return Err(ColumnFault::Ended);
            }
            self.rest = (self.rest + self.taken.load(Ordering::Relaxed)).saturating_sub(skipped as u64);
            rest -= skipped;
        }
        Ok(())
    }

    fn skip_records(&mut self, rows: usize) -> Result<usize, ColumnFault> {
        let skipped = match &mut self.reader {
            Some(ColumnReader::BoolColumnReader(reader)) => guarded(|| reader.skip_records(rows)),
            Some(ColumnReader::Int32ColumnReader(reader)) => guarded(|| reader.skip_records(rows)),
            Some(ColumnReader::Int64ColumnReader(reader)) => guarded(|| reader.skip_records(rows)),
            Some(ColumnReader::FloatColumnReader(reader)) => guarded(|| reader.skip_records(rows)),
            Some(ColumnReader::DoubleColumnReader(reader)) => guarded(|| reader.skip_records(rows)),
            Some(ColumnReader::ByteArrayColumnReader(reader)) => guarded(|| reader.skip_records(rows)),
            None => Ok(0),
            _ => Err("it is of another type".to_owned()),
        };
        skipped.map_err(|reason| ColumnFault::Unreadable { reason })
    }

    /// Reads rows up to the end of the page. Strings, which may be long, are read one by one.
    fn read_ahead(&mut self) -> Result<(), ColumnFault> {
        self.taken.store(0, Ordering::Relaxed);
        let most = match &self.reader {
            Some(ColumnReader::ByteArrayColumnReader(_)) => 1,
            _ => self.rest.clamp(1, AHEAD),
        };
        let (rows, values) = self.read(most as usize)?;
        self.rest = (self.rest + self.taken.load(Ordering::Relaxed)).saturating_sub(rows as u64);
        let definitions = &self.levels.definitions;
        // A column that has no nulls has no levels.
        if definitions.is_empty() {
            self.ahead = values.into_iter();
            return Ok(());
        }
        let mut values = values.into_iter();
        let mut cell = |level: &i16| if *level == self.value { values.next() } else { None };
        let cells: Vec<_> = definitions.iter().map(|level| cell(level).unwrap_or(Ok(Value::Null))).collect();
        self.ahead = cells.into_iter();
        Ok(())
    }

    /// Reads up to this many rows; returns their number, and their values without nulls.
    fn read(&mut self, rows: usize) -> Result<(usize, Vec<Result<Value, ColumnFault>>), ColumnFault> {
        let (levels, unsigned) = (&mut self.levels, self.unsigned);
        match &mut self.reader {
            Some(ColumnReader::BoolColumnReader(reader)) => {
                values(levels, reader, rows, |value| Ok(Value::Bool(value)))
            }
            Some(ColumnReader::Int32ColumnReader(reader)) => values(levels, reader, rows, |value: i32| {
                Ok(Value::Integer(if unsigned { i64::from(value as u32) } else { value.into() }))
            }),
            Some(ColumnReader::Int64ColumnReader(reader)) => {
                values(levels, reader, rows, |value| match unsigned && value < 0 {
                    true => Err(ColumnFault::NoInteger { value: (value as u64).to_string() }),
                    false => Ok(Value::Integer(value)),
                })
            }
            Some(ColumnReader::FloatColumnReader(reader)) => {
                values(levels, reader, rows, |value| Ok(Value::Float(value.into())))
            }
            Some(ColumnReader::DoubleColumnReader(reader)) => {
                values(levels, reader, rows, |value| Ok(Value::Float(value)))
            }
            Some(ColumnReader::ByteArrayColumnReader(reader)) => values(levels, reader, rows, |value: ByteArray| {
                String::from_utf8(value.data().to_vec()).map(Value::Text).map_err(|_| ColumnFault::NotUtf8)
            }),
            None => Ok((0, vec![])),
            _ => Err(ColumnFault::Unreadable { reason: "it is of another type".into() }),
        }
    }
}

/// Reads a copied column row by row.
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
        let Some(entry) = self.column.entry else { return Ok(self.leaf.one()?.map(Cell::One)) };
        let Some(mut values) = self.leaf.next()?.map(Vec::into_iter) else { return Ok(None) };
        let entries = self.leaf.levels().definitions.iter().filter(|level| **level >= entry);
        let value = |level: &i16| if *level == self.column.value { values.next() } else { None };
        Ok(Some(Cell::Each(entries.map(value).map(|value| value.unwrap_or(Value::Null)).collect())))
    }
}

/// Reads up to this many rows; returns their number, and their values without nulls.
fn values<T: DataType>(
    levels: &mut Levels,
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    convert: impl Fn(T::T) -> Result<Value, ColumnFault>,
) -> Result<(usize, Vec<Result<Value, ColumnFault>>), ColumnFault> {
    let mut stored = Vec::new();
    let rows = levels.rows(reader, rows, &mut stored)?;
    Ok((rows, stored.into_iter().map(convert).collect()))
}
