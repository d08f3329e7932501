use super::{Nested, Rows, Table};
use crate::requests::parquet::{Content, NestedCells, guarded};
use crate::requests::{ColumnFault, InputError, Progress, Value};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::fs::File;
use std::path::Path;

/// Columns of a Parquet file: values, lists, lists of lists, and maps.
pub struct Groups {
    file: String,
    reader: SerializedFileReader<Content>,
    content: Content,
    columns: Vec<Column>,
    /// Number of opened row groups.
    groups: usize,
    /// Unread rows of the last one.
    left: u64,
    /// Rows that were read.
    row: u64,
    total: u64,
}

/// A column of one leaf, or a map of two.
struct Column {
    name: String,
    leaves: Vec<NestedCells>,
}

impl Groups {
    pub fn open(name: String, path: &Path, names: &[String]) -> Result<Self, InputError> {
        let content = File::open(path).and_then(Content::new);
        let content = content.map_err(|source| InputError::Read { file: name.clone(), source })?;
        let table = |reason: String| InputError::Table { file: name.clone(), reason };
        let reader = guarded(|| SerializedFileReader::new(content.clone())).map_err(table)?;
        let metadata = reader.metadata().file_metadata();
        let columns = names.iter().map(|column| Column::of(metadata.schema_descr(), column));
        let columns = columns.collect::<Result<_, _>>().map_err(table)?;
        let total = u64::try_from(metadata.num_rows()).unwrap_or(0);
        Ok(Self { file: name, reader, content, columns, groups: 0, left: 0, row: 0, total })
    }

    /// Opens row groups until a row exists; false at the end.
    fn find_row(&mut self) -> Result<bool, InputError> {
        while self.left == 0 {
            if self.groups == self.reader.num_row_groups() {
                return Ok(false);
            }
            let group = self.reader.metadata().row_group(self.groups);
            let rows = u64::try_from(group.num_rows()).map_err(|_| "a row group has fewer than no rows".to_owned());
            let mut leaves = self.columns.iter_mut().flat_map(|column| &mut column.leaves);
            let begun = rows.and_then(|rows| {
                leaves.try_for_each(|leaf| leaf.begin(&self.content, group))?;
                Ok(rows)
            });
            self.left = begun.map_err(|reason| InputError::Table { file: self.file.clone(), reason })?;
            self.groups += 1;
        }
        Ok(true)
    }

    /// Rows of the next row group.
    fn whole_group(&self) -> Option<u64> {
        let is_one = self.groups < self.reader.num_row_groups();
        is_one.then(|| u64::try_from(self.reader.metadata().row_group(self.groups).num_rows()).ok()).flatten()
    }

    /// Skips rows of the row group that is read.
    fn skip_in_group(&mut self, rows: u64) -> Result<(), InputError> {
        let (file, row) = (&self.file, self.row + 1);
        self.columns.iter_mut().try_for_each(|column| {
            let skipped = column.leaves.iter_mut().try_for_each(|leaf| leaf.skip(rows as usize));
            let name = column.name.clone();
            skipped.map_err(|fault| InputError::Column { file: file.clone(), row, column: name, fault })
        })
    }

    /// Reads this many rows of the row group, column by column.
    fn read_in_group(&mut self, count: u64, columns: &mut [Vec<Nested>]) -> Result<(), InputError> {
        let (file, rows) = (&self.file, self.row + 1..=self.row + count);
        for (column, cells) in self.columns.iter_mut().zip(columns) {
            cells.reserve(count as usize);
            for row in rows.clone() {
                cells.push(column.next().map_err(|fault| {
                    let (file, column) = (file.clone(), column.name.clone());
                    InputError::Column { file, row, column, fault }
                })?);
            }
        }
        self.left -= count;
        self.row += count;
        Ok(())
    }
}

impl Column {
    /// The top-level column with a name in a schema.
    fn of(schema: &SchemaDescriptor, name: &str) -> Result<Self, String> {
        let is_of = |&place: &usize| schema.column(place).path().parts().first().is_some_and(|top| top == name);
        let places: Vec<usize> = (0..schema.num_columns()).filter(is_of).collect();
        let is_map = places.len() == 2 && places.iter().all(|place| schema.column(*place).max_rep_level() == 1);
        match places.len() {
            0 => return Err(format!("the column `{name}` is missing")),
            1 => {}
            _ if is_map => {}
            _ => return Err(format!("the column `{name}` is a struct: expected values, lists or a map")),
        }
        let leaves = places.into_iter().map(|place| NestedCells::new(schema, place));
        Ok(Self { name: name.to_owned(), leaves: leaves.collect::<Result<_, _>>()? })
    }

    fn next(&mut self) -> Result<Nested, ColumnFault> {
        let mut cells = self.leaves.iter_mut().map(|leaf| leaf.next()?.ok_or(ColumnFault::Ended));
        let first = cells.next().unwrap_or(Err(ColumnFault::Ended))?;
        let Some(second) = cells.next() else { return Ok(first) };
        let (Nested::List(keys), Nested::List(values)) = (first, second?) else { return Ok(Nested::One(Value::Null)) };
        let entries = keys.into_iter().zip(values).map(|(key, value)| match (key, value) {
            (Nested::One(key), Nested::One(value)) => Ok((key, value)),
            _ => Err(ColumnFault::Unreadable { reason: "it is a map of lists".into() }),
        });
        entries.collect::<Result<_, _>>().map(Nested::Map)
    }
}

impl Table for Groups {
    fn read(&mut self, rows: usize) -> Result<Rows, InputError> {
        let mut read = Rows::new(self.columns.len());
        while read.count < rows && self.find_row()? {
            let count = self.left.min((rows - read.count) as u64);
            self.read_in_group(count, &mut read.columns)?;
            read.count += count as usize;
        }
        Ok(read)
    }

    /// Completely skipped row groups are not read.
    fn skip(&mut self, rows: u64) -> Result<u64, InputError> {
        let mut rest = rows;
        while rest > 0 {
            let whole = self.whole_group().filter(|whole| self.left == 0 && *whole <= rest);
            if let Some(whole) = whole {
                self.groups += 1;
                (self.row, rest) = (self.row + whole, rest - whole);
                continue;
            }
            if !self.find_row()? {
                break;
            }
            let count = rest.min(self.left);
            if count < self.left {
                self.skip_in_group(count)?;
            }
            self.left -= count;
            (self.row, rest) = (self.row + count, rest - count);
        }
        Ok(rows - rest)
    }

    fn progress(&self) -> Option<Progress> {
        Some(Progress { done: self.row, all: self.total })
    }
}
