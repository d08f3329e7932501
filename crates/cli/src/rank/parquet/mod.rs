mod cells;
mod columns;
mod decompress;
mod fault;
mod guard;
mod pages;
#[cfg(test)]
mod tests;

pub use fault::ColumnFault;

use super::input::{InputError, LARGEST, Progress, Requests};
use cells::Cells;
use columns::{Role, leaves};
use guard::guarded;
use pages::Content;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rewire::rank::{Batch, Columns, ColumnsError, Schema};
use std::fs::File;
use std::path::Path;

/// Values of a row at most, of eight bytes each.
const MOST_VALUES: u64 = LARGEST / 8;

/// Requests of a Parquet file with the columns of the JSON Lines form.
///
/// `history` and `candidates` are structs of lists, or each list is a column of its own, `history.item_id`.
pub struct Rows {
    file: String,
    reader: SerializedFileReader<Content>,
    content: Content,
    cells: Vec<Cells>,
    /// Row groups that were begun.
    groups: usize,
    /// Rows of the last one that were not read.
    left: u64,
    /// Rows that were read.
    row: u64,
    total: u64,
}

impl Rows {
    pub fn open(name: String, path: &Path, schema: &Schema) -> Result<Self, InputError> {
        let content = File::open(path).and_then(Content::new);
        let content = content.map_err(|source| InputError::Read { file: name.clone(), source })?;
        let table = |reason: String| InputError::Table { file: name.clone(), reason };
        let reader = guarded(|| SerializedFileReader::new(content.clone())).map_err(table)?;
        let metadata = reader.metadata().file_metadata();
        let cells = leaves(metadata.schema_descr(), schema).map_err(table)?.into_iter().map(Cells::new).collect();
        let total = u64::try_from(metadata.num_rows()).unwrap_or(0);
        Ok(Self { file: name, reader, content, cells, groups: 0, left: 0, row: 0, total })
    }

    /// Reads rows until there are as many rows and values as are asked for: how many rows, and whether there may be more or
    /// what went wrong after them.
    fn read_rows(&mut self, wanted: usize) -> (usize, Result<bool, InputError>) {
        let (mut rows, mut entries) = (0, 0);
        self.cells.iter_mut().for_each(|cells| cells.truncate(0));
        while entries < wanted {
            match self.read_row() {
                Ok(Some(values)) => (rows, entries) = (rows + 1, entries + 1 + values),
                Ok(None) => return (rows, Ok(false)),
                Err(error) => return (rows, Err(error)),
            }
        }
        (rows, Ok(true))
    }

    /// Reads a row. The number of its events and candidates; `None` at the end.
    fn read_row(&mut self) -> Result<Option<usize>, InputError> {
        while self.left == 0 {
            self.finish_group()?;
            if self.groups == self.reader.num_row_groups() {
                return match self.row < self.total {
                    true => Err(self.table(format!("the table ends early: {} rows are announced", self.total))),
                    false => Ok(None),
                };
            }
            self.begin_group()?;
        }
        let (mut taken, mut entries) = (0, [0, 0]);
        for position in 0..self.cells.len() {
            let values = self.next(position)?.ok_or(ColumnFault::Ended);
            let (large, limit) = (ColumnFault::Large { limit: LARGEST }, MOST_VALUES - taken);
            let values = values.and_then(|values| if values > limit { Err(large) } else { Ok(values) });
            let values = values.map_err(|fault| self.fault(position, fault))?;
            taken += values;
            match self.cells.get(position).map(|cells| &cells.leaf.role) {
                Some(Role::History(_)) => entries[0] = values as usize,
                Some(Role::Candidates(_)) => entries[1] = values as usize,
                _ => {}
            }
        }
        self.left -= 1;
        self.row += 1;
        Ok(Some(entries.iter().sum()))
    }

    fn next(&mut self, position: usize) -> Result<Option<u64>, InputError> {
        let next = self.cells.get_mut(position).map_or(Ok(None), Cells::next);
        next.map_err(|fault| self.fault(position, fault))
    }

    fn begin_group(&mut self) -> Result<(), InputError> {
        let group = self.reader.metadata().row_group(self.groups);
        let rows = u64::try_from(group.num_rows()).map_err(|_| "a row group has fewer than no rows".to_owned());
        let mut cells = self.cells.iter_mut();
        let begun = rows.and_then(|rows| cells.try_for_each(|cells| cells.begin(&self.content, group)).map(|()| rows));
        self.left = begun.map_err(|reason| self.table(reason))?;
        self.groups += 1;
        Ok(())
    }

    /// Checks that no column of the row group has more rows.
    fn finish_group(&mut self) -> Result<(), InputError> {
        if self.groups == 0 {
            return Ok(());
        }
        for position in 0..self.cells.len() {
            if self.next(position)?.is_some() {
                return Err(self.fault(position, ColumnFault::TooManyRows));
            }
        }
        Ok(())
    }

    /// Adds the rows that were read to a batch. The last of them is the one at `self.row`.
    fn add(&mut self, rows: usize, batch: &mut Batch) -> Result<(), InputError> {
        self.cells.iter_mut().for_each(|cells| cells.truncate(rows));
        let users: Vec<_> = self.cells.iter_mut().flat_map(|cells| std::mem::take(&mut cells.users)).collect();
        let before = batch.len();
        let columns = self.cells.iter().fold(Columns::new(users), |columns, cells| match &cells.leaf.role {
            Role::User => columns,
            Role::Labels => columns.labels(&cells.offsets, &cells.values),
            Role::Contextual(name) => columns.contextual(name, &cells.values),
            Role::History(name) => columns.history(name, &cells.offsets, &cells.values),
            Role::Candidates(name) => columns.candidates(name, &cells.offsets, &cells.values),
        });
        batch.extend(&columns).map_err(|error| match error {
            ColumnsError::Request(source) => {
                let row = self.row + 1 + (source.row - before) as u64 - rows as u64;
                InputError::Row { file: self.file.clone(), row, source: Box::new(source) }
            }
            error => self.table(error.to_string()),
        })
    }

    fn table(&self, reason: String) -> InputError {
        InputError::Table { file: self.file.clone(), reason }
    }

    /// What is wrong with a column in the row that is read.
    fn fault(&self, position: usize, fault: ColumnFault) -> InputError {
        let column = self.cells.get(position).map(|cells| cells.leaf.name.clone()).unwrap_or_default();
        InputError::Column { file: self.file.clone(), row: self.row + 1, column, fault }
    }
}

impl Requests for Rows {
    fn read(&mut self, batch: &mut Batch, entries: usize) -> Result<bool, InputError> {
        let (rows, read) = self.read_rows(entries);
        self.add(rows, batch)?;
        read
    }

    fn progress(&self) -> Option<Progress> {
        Some(Progress { done: self.row, all: self.total })
    }
}
