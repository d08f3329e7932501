mod carried;
mod cells;
mod columns;
mod decompress;
mod guard;
mod nested;
mod pages;
#[cfg(test)]
mod tests;

use super::columns::{Role, extend};
use super::{Carry, Cell, ColumnFault, InputError, LARGEST, Progress, Requests};
use carried::CarriedCells;
use cells::Cells;
use columns::{carried, leaves};
pub use guard::guarded;
pub use nested::NestedCells;
pub use pages::Content;

use parquet::file::reader::{FileReader, SerializedFileReader};
use rewire::rank::{Batch, ColumnsError, Schema};
use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

/// Maximum number of values per row, of eight bytes each.
const MOST_VALUES: u64 = LARGEST / 8;

/// Requests from a Parquet file with the columns of the JSON Lines format.
///
/// `history` and `candidates` are structs of lists, or each list is a separate column, `history.item_id`.
pub struct Rows {
    file: String,
    reader: SerializedFileReader<Content>,
    content: Content,
    cells: Vec<Cells>,
    carried: Vec<CarriedCells>,
    carry: Carry,
    /// Row groups that were opened.
    groups: usize,
    /// Unread rows of the last one.
    left: u64,
    /// Rows that were read.
    row: u64,
    total: u64,
    read: Read,
    /// By column, the cells of the added requests.
    taken: Vec<Vec<Cell>>,
}

/// Rows that were read together.
struct Read {
    /// How many.
    rows: usize,
    /// The number of rows that were added to a batch or rejected.
    done: usize,
    /// By copied column, their cells.
    carried: Vec<Vec<Cell>>,
    /// The row after them, from 1.
    next: u64,
    /// True if more rows may follow, or the error after these rows; used once they are done.
    end: Option<Result<bool, InputError>>,
}

impl Rows {
    pub fn open(name: String, path: &Path, schema: &Schema, carry: Carry) -> Result<Self, InputError> {
        let content = File::open(path).and_then(Content::new);
        let content = content.map_err(|source| InputError::Read { file: name.clone(), source })?;
        let table = |reason: String| InputError::Table { file: name.clone(), reason };
        let reader = guarded(|| SerializedFileReader::new(content.clone())).map_err(table)?;
        let metadata = reader.metadata().file_metadata();
        let file = metadata.schema_descr();
        let cells = leaves(file, schema).map_err(table)?.into_iter().map(Cells::new).collect();
        let carried = carried(file, &carry.names).map_err(table)?.into_iter().map(CarriedCells::new).collect();
        let total = u64::try_from(metadata.num_rows()).unwrap_or(0);
        let taken = vec![Vec::new(); carry.names.len()];
        let read = Read { rows: 0, done: 0, carried: taken.clone(), next: 1, end: None };
        Ok(Self { file: name, reader, content, cells, carried, carry, groups: 0, left: 0, row: 0, total, read, taken })
    }

    /// Reads rows until the requested number of rows and values is reached.
    fn read_rows(&mut self, wanted: usize) {
        let mut entries = 0;
        let mut last;
        self.cells.iter_mut().for_each(|cells| cells.column.truncate(0));
        self.read.carried.iter_mut().for_each(Vec::clear);
        (self.read.rows, self.read.done) = (0, 0);
        let end = loop {
            last = self.row;
            if entries >= wanted {
                break Ok(true);
            }
            match self.read_row() {
                Ok(Some(values)) => (self.read.rows, entries) = (self.read.rows + 1, entries + 1 + values),
                Ok(None) => break Ok(false),
                Err(error) => break Err(error),
            }
        };
        self.cells.iter_mut().for_each(|cells| cells.column.truncate(self.read.rows));
        self.read.carried.iter_mut().for_each(|cells| cells.truncate(self.read.rows));
        self.read.next = last + 1;
        self.read.end = Some(end);
    }

    /// Reads a row. Returns its number of events and candidates; `None` at the end.
    fn read_row(&mut self) -> Result<Option<usize>, InputError> {
        if !self.find_row()? {
            return Ok(None);
        }
        self.left -= 1;
        self.row += 1;
        let (mut taken, mut entries, mut bad) = (0, [0, 0], None);
        for position in 0..self.cells.len() {
            let values = match self.next(position).map(|values| values.ok_or(ColumnFault::Ended)) {
                Ok(Ok(values)) if values > MOST_VALUES - taken => Err(ColumnFault::Large { limit: LARGEST }),
                Ok(values) => values,
                // The other columns advance to the same row.
                Err(fault) if fault.is_of_value() => {
                    bad.get_or_insert((self.name(position), fault));
                    continue;
                }
                Err(fault) => Err(fault),
            };
            let values = values.map_err(|fault| self.fault(self.row, self.name(position), fault))?;
            taken += values;
            match self.cells.get(position).map(|cells| &cells.leaf.role) {
                Some(Role::History(_)) => entries[0] = values as usize,
                Some(Role::Candidates(_)) => entries[1] = values as usize,
                _ => {}
            }
        }
        if let Err((column, fault)) = self.read_carried(bad.is_none()) {
            if !fault.is_of_value() {
                return Err(self.fault(self.row, column, fault));
            }
            bad.get_or_insert((column, fault));
        }
        match bad {
            None => Ok(Some(entries.iter().sum())),
            Some((column, fault)) => Err(self.fault(self.row, column, fault)),
        }
    }

    /// Reads the copied columns of a row.
    fn read_carried(&mut self, is_good: bool) -> Result<(), (String, ColumnFault)> {
        let rows = self.read.rows;
        let candidates = self.cells.iter().map(|cells| &cells.column);
        let mut candidates = candidates.filter(|column| matches!(column.role, Role::Candidates(_)));
        let candidates = candidates.next().and_then(|column| column.offsets.get(rows..rows + 2));
        let candidates = candidates.map_or(0, |ends| (ends[1] - ends[0]) as usize);
        let mut bad = None;
        for (position, (column, cells)) in self.carried.iter_mut().zip(&mut self.read.carried).enumerate() {
            let cell = column.next().and_then(|cell| cell.ok_or(ColumnFault::Ended));
            let take = |cell| if is_good { self.carry.take(position, cell, candidates) } else { Ok(cell) };
            match cell.and_then(take) {
                Ok(cell) => cells.push(cell),
                Err(fault) if fault.is_of_value() => drop(bad.get_or_insert((column.column.name.clone(), fault))),
                Err(fault) => return Err((column.column.name.clone(), fault)),
            }
        }
        let user = self.cells.iter().find_map(|cells| cells.column.users.get(rows));
        if let (true, Some(user)) = (is_good, user) {
            self.carry.check_user(user).map_err(|fault| ("user".to_owned(), fault))?;
        }
        bad.map_or(Ok(()), Err)
    }

    /// Opens row groups until a row exists; false at the end.
    fn find_row(&mut self) -> Result<bool, InputError> {
        while self.left == 0 {
            self.finish_group()?;
            if self.groups == self.reader.num_row_groups() {
                return match self.row < self.total {
                    true => Err(self.table(format!("the table ends early: {} rows are announced", self.total))),
                    false => Ok(false),
                };
            }
            self.begin_group()?;
        }
        Ok(true)
    }

    /// The rows of the next row group, if it is unread and can be skipped entirely.
    fn whole_group(&self, most: u64) -> Option<u64> {
        let metadata = self.reader.metadata();
        let is_next = self.left == 0 && self.groups < metadata.num_row_groups();
        let rows = is_next.then(|| u64::try_from(metadata.row_group(self.groups).num_rows()).ok());
        rows.flatten().filter(|rows| *rows <= most)
    }

    fn next(&mut self, position: usize) -> Result<Option<u64>, ColumnFault> {
        self.cells.get_mut(position).map_or(Ok(None), Cells::next)
    }

    fn begin_group(&mut self) -> Result<(), InputError> {
        let group = self.reader.metadata().row_group(self.groups);
        let rows = u64::try_from(group.num_rows()).map_err(|_| "a row group has fewer than no rows".to_owned());
        let mut cells = self.cells.iter_mut();
        let mut carried = self.carried.iter_mut();
        let begun = rows.and_then(|rows| {
            cells.try_for_each(|cells| cells.begin(&self.content, group))?;
            carried.try_for_each(|cells| cells.begin(&self.content, group))?;
            Ok(rows)
        });
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
            if self.next(position).map_err(|fault| self.fault(self.row + 1, self.name(position), fault))?.is_some() {
                return Err(self.fault(self.row + 1, self.name(position), ColumnFault::TooManyRows));
            }
        }
        Ok(())
    }

    /// Adds the rows that were read to a batch, up to an invalid one.
    fn add(&mut self, batch: &mut Batch) -> Result<(), InputError> {
        let Read { rows, done, next, .. } = self.read;
        if rows == done {
            return Ok(());
        }
        let before = batch.len();
        let added = extend(batch, self.cells.iter().map(|cells| &cells.column), done..rows);
        let count = batch.len() - before;
        self.read.done = if added.is_ok() { rows } else { done + count + 1 };
        for (taken, cells) in self.taken.iter_mut().zip(&mut self.read.carried) {
            taken.extend(
                cells
                    .get_mut(done..done + count)
                    .into_iter()
                    .flatten()
                    .map(|cell| std::mem::replace(cell, Cell::Each(Vec::new()))),
            );
        }
        added.map_err(|error| match error {
            ColumnsError::Request(source) => {
                let row = next - (rows - done - count) as u64;
                InputError::Row { file: self.file.clone(), row, source: Box::new(source) }
            }
            error => self.table(error.to_string()),
        })
    }

    fn table(&self, reason: String) -> InputError {
        InputError::Table { file: self.file.clone(), reason }
    }

    fn name(&self, position: usize) -> String {
        self.cells.get(position).map(|cells| cells.leaf.name.clone()).unwrap_or_default()
    }

    /// The error of a column in a row.
    fn fault(&self, row: u64, column: String, fault: ColumnFault) -> InputError {
        InputError::Column { file: self.file.clone(), row, column, fault }
    }
}

impl Requests for Rows {
    fn read(&mut self, batch: &mut Batch, entries: usize) -> Result<bool, InputError> {
        let end = batch.len() + batch.entries() + entries;
        loop {
            if self.read.end.is_none() {
                let left = end.saturating_sub(batch.len() + batch.entries());
                if left == 0 {
                    return Ok(true);
                }
                self.read_rows(left);
            }
            self.add(batch)?;
            match self.read.end.take() {
                Some(Ok(true)) | None => {}
                Some(end) => return end,
            }
        }
    }

    fn take_carried(&mut self) -> Vec<Vec<Cell>> {
        self.taken.iter_mut().map(std::mem::take).collect()
    }

    fn carry(&self) -> &Carry {
        &self.carry
    }

    fn row(&self) -> u64 {
        self.row
    }

    fn skip(&mut self, rows: u64) -> Result<(), InputError> {
        let end = self.row + rows;
        while self.row < end {
            if let Some(rows) = self.whole_group(end - self.row) {
                (self.row, self.groups) = (self.row + rows, self.groups + 1);
                continue;
            }
            self.cells.iter_mut().for_each(|cells| cells.column.truncate(0));
            match self.read_row() {
                Err(error) if !error.is_of_row() => return Err(error),
                Ok(None) => return Ok(()),
                _ => {}
            }
            self.read.carried.iter_mut().for_each(Vec::clear);
        }
        Ok(())
    }

    fn text(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn progress(&self) -> Option<Progress> {
        Some(Progress { done: self.row, all: self.total })
    }
}
