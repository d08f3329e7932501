//! Lists of all rows, concatenated per column.

use super::batch::Group;
use super::{Column, RequestFault};
use std::ops::Range;

/// Columns whose lists have equal lengths in every row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lists {
    /// The end offset of each row.
    ends: Vec<usize>,
    columns: Vec<Vec<i64>>,
    /// By column, true if the open row has a list.
    given: Vec<bool>,
}

impl Lists {
    pub fn new(columns: usize) -> Self {
        Self { ends: Vec::new(), columns: vec![Vec::new(); columns], given: vec![false; columns] }
    }

    /// Entries of all rows.
    pub fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The range of a row's entries; empty if the row does not exist.
    pub fn range(&self, row: usize) -> Range<usize> {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(row).map_or(0..0, |&end| start..end)
    }

    /// The entries of all rows.
    pub fn column(&self, column: usize) -> &[i64] {
        self.columns.get(column).map_or(&[], Vec::as_slice)
    }

    /// The list of a row.
    pub fn row(&self, column: usize, row: usize) -> Option<&[i64]> {
        self.columns.get(column)?.get(self.range(row))
    }

    /// Appends a row of another table with the same number of columns.
    pub fn append(&mut self, other: &Self, row: usize) {
        let range = other.range(row);
        for (own, others) in self.columns.iter_mut().zip(&other.columns) {
            own.extend_from_slice(others.get(range.clone()).unwrap_or_default());
        }
        self.ends.push(self.end() + range.len());
    }

    /// Starts a column's list in the open row; `None` if it was already started.
    pub fn begin(&mut self, column: usize) -> Option<&mut Vec<i64>> {
        let given = self.given.get_mut(column).filter(|given| !**given)?;
        *given = true;
        self.columns.get_mut(column)
    }

    /// True if the open row has a list of the column.
    pub fn is_given(&self, column: usize) -> bool {
        self.given.get(column).copied().unwrap_or(false)
    }

    /// The list of the open row, if it has one.
    pub fn open_list(&self, column: usize) -> Option<&[i64]> {
        self.is_given(column).then(|| self.columns.get(column)?.get(self.end()..)).flatten()
    }

    /// Checks the lists of the open row: ids are within their tables, lists have equal lengths. Returns the length.
    pub fn check(&self, group: Group, columns: &[Column]) -> Result<usize, RequestFault> {
        let mut first: Option<(&Column, usize)> = None;
        for (position, column) in columns.iter().enumerate() {
            let title = || group.title(&column.name);
            let Some(list) = self.open_list(position) else { continue };
            check_ids(group, column, list)?;
            let &mut (other, expected) = first.get_or_insert((column, list.len()));
            if list.len() != expected {
                let other = group.title(&other.name);
                return Err(RequestFault::Lengths { column: title(), actual: list.len(), other, expected });
            }
        }
        Ok(first.map_or(0, |(_, length)| length))
    }

    /// Closes the open row with `length` entries. Missing lists are filled with zeros.
    pub fn close(&mut self, length: usize) {
        let end = self.end() + length;
        self.columns.iter_mut().for_each(|column| column.resize(end, 0));
        self.ends.push(end);
        self.given.fill(false);
    }

    /// Discards the open row.
    pub fn discard(&mut self) {
        let end = self.end();
        self.columns.iter_mut().for_each(|column| column.truncate(end));
        self.given.fill(false);
    }
}

fn check_ids(group: Group, column: &Column, list: &[i64]) -> Result<(), RequestFault> {
    let Some(table) = &column.table else { return Ok(()) };
    let is_row = |value: i64| usize::try_from(value).is_ok_and(|id| id < table.rows);
    match list.iter().position(|&value| !is_row(value)) {
        None => Ok(()),
        Some(position) => Err(RequestFault::OutOfRange {
            column: group.title(&column.name),
            position: (group != Group::Contextual).then_some(position),
            value: list.get(position).copied().unwrap_or_default(),
            table: table.name.clone(),
            rows: table.rows,
        }),
    }
}
