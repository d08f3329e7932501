//! Encodes columns as inputs of a graph.

use crate::{Cell, Column, Data, Feature, FeatureValues};
use rewire_graph::{HostTensor, TensorSizeError};
use rewire_tables::hash;
use std::ops::Range;
use thiserror::Error;

/// Why a column cannot be encoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The column is missing.
    #[error("there is no column `{column}`, which the model reads")]
    Missing {
        /// The column.
        column: String,
    },
    /// A row is not valid for the feature.
    #[error("column `{column}`, row {row}: expected {expected}, got {actual}")]
    Cell {
        /// The column.
        column: String,
        /// The row, from 0.
        row: usize,
        /// The expected value.
        expected: String,
        /// The actual value.
        actual: String,
    },
    /// Two features of a group have sequences of different lengths.
    #[error("columns `{first}` and `{second}`, row {row}: expected sequences of equal length, got {lengths:?} steps")]
    Lengths {
        /// The column that defines the lengths.
        first: String,
        /// The other column.
        second: String,
        /// The row, from 0.
        row: usize,
        /// Number of steps of both.
        lengths: (i64, i64),
    },
    /// The model uses sampled negatives, but no table of negatives was passed.
    #[error("the model uses sampled negatives: expected a table of negatives with a row for each batch")]
    NoNegatives,
    /// A feature is not sparse.
    #[error("`{feature}` is not a feature with ids: name a sparse feature as session or group")]
    NoIds {
        /// The feature.
        feature: String,
    },
    /// Two columns of a table have different numbers of rows.
    #[error("columns `{first}` and `{second}`: expected equal numbers of rows, got {rows:?}")]
    Rows {
        /// The first column.
        first: String,
        /// The second column.
        second: String,
        /// Row counts of both.
        rows: (usize, usize),
    },
    /// A tensor is too large.
    #[error(transparent)]
    Size(#[from] TensorSizeError),
}

/// One row of a table of sampled negatives, used for one batch. Each column of the table holds lists of items.
#[derive(Clone, Copy)]
pub struct NegativeRow<'a, 'c> {
    /// The columns of the table by name.
    pub column: &'a dyn Fn(&str) -> Option<&'c Column<'c>>,
    /// Row index in the table.
    pub row: usize,
}

impl EncodeError {
    /// The same error with its row number shifted by `rows`, the number of preceding rows.
    #[must_use]
    pub fn after(mut self, rows: usize) -> Self {
        if let Self::Cell { row, .. } | Self::Lengths { row, .. } = &mut self {
            *row += rows;
        }
        self
    }
}

/// The inputs of a feature.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    ids: Vec<i64>,
    floats: Vec<f32>,
    weights: Vec<f32>,
    /// Number of ids of every row, or number of steps of every row of a sequence.
    pub lengths: Vec<i64>,
    key_lengths: Vec<i64>,
}

/// Why a row is invalid: the expected and the actual value.
pub(crate) type Fault = (String, String);

pub(crate) fn fault(expected: &str, actual: impl ToString) -> Fault {
    (expected.to_owned(), actual.to_string())
}

const IDS: &str = "ids: integers from 0, text or lists of them, or a map from ids to weights";
const FLOATS: &str = "numbers, or text or lists of them";

pub(crate) fn kind(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Null => "a missing value".to_owned(),
        Cell::Int(value) => value.to_string(),
        Cell::Float(value) => format!("the number {value}"),
        Cell::Text(text) => format!("`{text}`"),
        Cell::List(..) => "a list".to_owned(),
        Cell::Map(..) => "a map".to_owned(),
    }
}

/// Checks that the id is a row of the feature's table. If the table grows, any id is accepted.
fn id(feature: &Feature, value: i64) -> Result<i64, Fault> {
    if feature.growing.is_some() {
        return Ok(value);
    }
    let rows = if let FeatureValues::Ids { rows, .. } = feature.values { rows } else { 0 };
    let is_row = usize::try_from(value).is_ok_and(|id| id < rows);
    is_row.then_some(value).ok_or_else(|| fault(&format!("an id from 0 to below {rows}, the rows of its table"), value))
}

fn id_of(feature: &Feature, text: &str) -> Result<i64, Fault> {
    match text.trim().parse() {
        Ok(value) => id(feature, value),
        Err(_) if feature.growing.is_some() => Ok(hash(text.trim())),
        Err(_) => Err(fault("an id, an integer from 0", format!("`{text}`"))),
    }
}

fn number_of(text: &str) -> Result<f32, Fault> {
    text.trim().parse().map_err(|_| fault("a number", format!("`{text}`")))
}

pub(crate) fn broken() -> Fault {
    fault("ascending offsets within the column, and text in UTF-8", "others")
}

/// Calls `each` with the cells of a list.
fn cells(
    items: &Column<'_>,
    range: Range<usize>,
    mut each: impl FnMut(Cell<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    range.into_iter().try_for_each(|row| each(items.cell(row).ok_or_else(broken)?))
}

impl Encoded {
    /// Encodes the rows of a column.
    pub fn new(feature: &Feature, column: &Column<'_>, rows: impl Iterator<Item = usize>) -> Result<Self, EncodeError> {
        let mut encoded = Self::default();
        for row in rows {
            let cell = column.cell(row).ok_or_else(broken);
            let added = cell.and_then(|cell| match (&feature.values, &feature.sequence) {
                (FeatureValues::Ids { default, .. }, None) => encoded.add_ids(feature, column, cell, default),
                (FeatureValues::Floats { default, .. }, None) => encoded.add_floats(feature, cell, default),
                (FeatureValues::Ids { default, .. }, Some(form)) => {
                    encoded.add_id_steps(feature, (column, cell), default, &form.delimiter)
                }
                (FeatureValues::Floats { default, .. }, Some(form)) => {
                    encoded.add_float_steps(feature, cell, default, &form.delimiter)
                }
            });
            added.map_err(|(expected, actual)| EncodeError::Cell {
                column: feature.name.clone(),
                row,
                expected,
                actual,
            })?;
        }
        Ok(encoded)
    }

    /// Encodes the items of one row of negatives: for a sequence as the steps of a single row, for other features as one row per item.
    pub fn negatives(feature: &Feature, negatives: NegativeRow<'_, '_>) -> Result<Self, EncodeError> {
        let missing = || EncodeError::Missing { column: feature.name.clone() };
        let column = (negatives.column)(&feature.name).ok_or_else(missing)?;
        let row = negatives.row;
        if feature.sequence.is_some() {
            return Self::new(feature, column, row..row + 1);
        }
        match column.cell(row) {
            Some(Cell::List(items, range)) => Self::new(feature, items, range),
            other => Err(EncodeError::Cell {
                column: feature.name.clone(),
                row,
                expected: "a list of negative items".to_owned(),
                actual: other.map_or_else(|| "no row".to_owned(), |cell| kind(&cell)),
            }),
        }
    }

    /// Number of items in the result of [`Encoded::negatives`].
    pub fn items(&self, feature: &Feature) -> i64 {
        match (&feature.sequence, &feature.values) {
            (Some(_), _) => self.lengths.iter().sum(),
            (None, FeatureValues::Ids { .. }) => self.lengths.len() as i64,
            (None, FeatureValues::Floats { .. }) => (self.floats.len() / feature.value_dim) as i64,
        }
    }

    /// Appends the result of [`Encoded::negatives`]: to a sequence as steps of its last row, to other features as new rows.
    pub fn append(&mut self, negatives: Self, feature: &Feature) {
        let Self { ids, floats, weights, lengths, key_lengths } = negatives;
        match self.lengths.last_mut().filter(|_| feature.sequence.is_some()) {
            Some(last) => *last += lengths.iter().sum::<i64>(),
            None => self.lengths.extend(lengths),
        }
        self.ids.extend(ids);
        self.floats.extend(floats);
        self.weights.extend(weights);
        self.key_lengths.extend(key_lengths);
    }

    /// The first id of every row, 0 for a row without ids. 64-bit ids are folded to 32 bits.
    pub fn first_ids(&self, feature: &Feature) -> Vec<u32> {
        let mut start = 0;
        let mut keys = self.key_lengths.iter();
        let by_step = feature.sequence.is_some() && feature.value_dim != 1;
        let first = |&length: &i64| {
            let count = match by_step {
                true => keys.by_ref().take(length as usize).sum(),
                false => length,
            };
            let id = if count > 0 { self.ids.get(start).copied() } else { None };
            start += count as usize;
            id.map_or(0, |id| (id ^ id >> 32) as u32)
        };
        self.lengths.iter().map(first).collect()
    }

    fn push(&mut self, feature: &Feature, id: i64, weight: f32) {
        self.ids.push(id);
        if feature.weighted {
            self.weights.push(weight);
        }
    }

    fn push_text(&mut self, feature: &Feature, text: &str) -> Result<(), Fault> {
        let (id, weight) = match text.split_once(':').filter(|_| feature.weighted) {
            Some((id, weight)) => (id, number_of(weight)?),
            None => (text, 1.0),
        };
        self.push(feature, id_of(feature, id)?, weight);
        Ok(())
    }

    fn add_ids(
        &mut self,
        feature: &Feature,
        column: &Column<'_>,
        cell: Cell<'_>,
        default: &[i64],
    ) -> Result<(), Fault> {
        let before = self.ids.len();
        let mut missing = |most: usize| default.iter().take(most).for_each(|&id| self.push(feature, id, 1.0));
        match cell {
            // An integer column holds one id per row, so only the first default is used.
            Cell::Null if matches!(column.data, Data::I32(_) | Data::I64(_)) => missing(1),
            Cell::Null | Cell::Text("") => missing(usize::MAX),
            Cell::List(_, range) if range.is_empty() => missing(usize::MAX),
            Cell::Int(value) => self.push(feature, id(feature, value)?, 1.0),
            Cell::Text(text) => {
                text.split(&feature.separator).try_for_each(|text| self.push_text(feature, text))?;
            }
            Cell::List(items, range) => cells(items, range, |cell| match cell {
                Cell::Int(value) => {
                    self.push(feature, id(feature, value)?, 1.0);
                    Ok(())
                }
                Cell::Text(text) => self.push_text(feature, text),
                other => Err(fault(IDS, kind(&other))),
            })?,
            Cell::Map(keys, values, range) => self.add_map(feature, keys, values, range)?,
            Cell::Float(_) => return Err(fault(IDS, kind(&cell))),
        }
        self.lengths.push((self.ids.len() - before) as i64);
        Ok(())
    }

    fn add_map(
        &mut self,
        feature: &Feature,
        keys: &Column<'_>,
        values: &Column<'_>,
        range: Range<usize>,
    ) -> Result<(), Fault> {
        for row in range {
            let key = match keys.cell(row).ok_or_else(broken)? {
                Cell::Int(value) => id(feature, value)?,
                Cell::Text(text) => id_of(feature, text)?,
                other => return Err(fault(IDS, kind(&other))),
            };
            let weight = match values.cell(row).ok_or_else(broken)? {
                Cell::Int(value) => value as f32,
                Cell::Float(value) => value as f32,
                other => return Err(fault("a weight for every id", kind(&other))),
            };
            if !feature.weighted && weight != 1.0 {
                let expected =
                    "weights of 1, as the feature is not weighted; set `weighted: true` in its configuration";
                return Err(fault(expected, weight));
            }
            self.push(feature, key, weight);
        }
        Ok(())
    }

    fn add_floats(&mut self, feature: &Feature, cell: Cell<'_>, default: &[f32]) -> Result<(), Fault> {
        let before = self.floats.len();
        match cell {
            Cell::Null | Cell::Text("") => self.floats.extend(default),
            Cell::List(_, range) if range.is_empty() => self.floats.extend(default),
            cell => self.push_floats(feature, cell)?,
        }
        // With one value per row, only the first default is used.
        if feature.value_dim == 1 && default.len() > 1 && self.floats.len() - before == default.len() {
            self.floats.truncate(before + 1);
        }
        match self.floats.len() - before {
            found if found == feature.value_dim => Ok(()),
            0 => Err(fault("a value, as `fg_encoded_default_value` is not set", "none")),
            found => Err(fault(&format!("{} numbers", feature.value_dim), found)),
        }
    }

    fn push_floats(&mut self, feature: &Feature, cell: Cell<'_>) -> Result<(), Fault> {
        match cell {
            Cell::Int(value) => self.floats.push(value as f32),
            Cell::Float(value) => self.floats.push(value as f32),
            Cell::Text(text) => {
                for text in text.split(&feature.separator) {
                    self.floats.push(number_of(text)?);
                }
            }
            Cell::List(items, range) => cells(items, range, |cell| self.push_floats(feature, cell))?,
            other => return Err(fault(FLOATS, kind(&other))),
        }
        Ok(())
    }

    /// Ends a step whose first id is at index `before`.
    fn end_step(&mut self, before: usize) {
        self.key_lengths.push((self.ids.len() - before) as i64);
    }

    fn add_id_steps(
        &mut self,
        feature: &Feature,
        (column, cell): (&Column<'_>, Cell<'_>),
        default: &[i64],
        delimiter: &str,
    ) -> Result<(), Fault> {
        let (ids, steps) = (self.ids.len(), self.key_lengths.len());
        match cell {
            // In a column of id lists every id is a step. So is every default id.
            _ if is_empty(&cell) && column.is_of_ids() => {
                self.ids.extend(default);
                self.key_lengths.extend(default.iter().map(|_| 1));
            }
            _ if is_empty(&cell) => self.add_default_step(default),
            Cell::Text(text) => {
                for step in text.split(delimiter) {
                    self.add_step_of_text(feature, step)?;
                }
            }
            Cell::List(items, range) => cells(items, range, |cell| self.add_id_step(feature, cell))?,
            other => return Err(fault("a sequence of ids: text, a list, or a list of lists", kind(&other))),
        }
        // With `value_dim` 1 every id is a step.
        let length = match feature.value_dim {
            1 => self.ids.len() - ids,
            _ => self.key_lengths.len() - steps,
        };
        self.lengths.push(length as i64);
        Ok(())
    }

    fn add_default_step(&mut self, default: &[i64]) {
        if !default.is_empty() {
            self.ids.extend(default);
            self.key_lengths.push(default.len() as i64);
        }
    }

    fn add_step_of_text(&mut self, feature: &Feature, text: &str) -> Result<(), Fault> {
        let before = self.ids.len();
        for text in text.split(&feature.separator).filter(|text| !text.is_empty()) {
            self.ids.push(id_of(feature, text)?);
        }
        self.end_step(before);
        Ok(())
    }

    fn add_id_step(&mut self, feature: &Feature, cell: Cell<'_>) -> Result<(), Fault> {
        let before = self.ids.len();
        match cell {
            Cell::Int(value) => self.ids.push(id(feature, value)?),
            Cell::Text(text) => return self.add_step_of_text(feature, text),
            Cell::Null => {}
            Cell::List(items, range) => cells(items, range, |cell| match cell {
                Cell::Int(value) => {
                    self.ids.push(id(feature, value)?);
                    Ok(())
                }
                other => Err(fault(IDS, kind(&other))),
            })?,
            other => return Err(fault(IDS, kind(&other))),
        }
        self.end_step(before);
        Ok(())
    }

    fn add_float_steps(
        &mut self,
        feature: &Feature,
        cell: Cell<'_>,
        default: &[f32],
        delimiter: &str,
    ) -> Result<(), Fault> {
        let before = self.floats.len();
        match cell {
            Cell::Null | Cell::Text("") => self.floats.extend(default),
            Cell::List(_, range) if range.is_empty() => self.floats.extend(default),
            Cell::Text(text) => {
                for step in text.split(delimiter) {
                    self.push_floats(feature, Cell::Text(step))?;
                }
            }
            Cell::List(items, range) => cells(items, range, |cell| self.push_floats(feature, cell))?,
            other => return Err(fault("a sequence of numbers: text, a list, or a list of lists", kind(&other))),
        }
        let count = self.floats.len() - before;
        if !count.is_multiple_of(feature.value_dim) {
            return Err(fault(&format!("{} numbers per step", feature.value_dim), format!("{count} in all")));
        }
        self.lengths.push((count / feature.value_dim) as i64);
        Ok(())
    }

    /// The inputs by name. `lengths` is the name of the feature that owns the lengths input.
    pub fn inputs(self, feature: &Feature, lengths: &str) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        let mut inputs = vec![];
        let lengths = (format!("{lengths}.lengths"), HostTensor::lengths(&self.lengths));
        match feature.values {
            FeatureValues::Floats { .. } => {
                let rows = self.floats.len() / feature.value_dim;
                let values = HostTensor::f32([rows, feature.value_dim], &self.floats)?;
                inputs.push((feature.input("values"), values));
                inputs.extend(feature.sequence.is_some().then_some(lengths));
            }
            FeatureValues::Ids { .. } => {
                inputs.push(lengths);
                let values = match feature.growing {
                    Some(_) => HostTensor::vector(&self.ids),
                    None => HostTensor::vector(&self.ids.iter().map(|&row| row as u32).collect::<Vec<_>>()),
                };
                inputs.push((feature.input("values"), values));
                if feature.weighted {
                    inputs.push((feature.input("weights"), HostTensor::vector(&self.weights)));
                }
                if feature.sequence.is_some() && feature.value_dim != 1 {
                    inputs.push((feature.input("key_lengths"), HostTensor::lengths(&self.key_lengths)));
                }
            }
        }
        Ok(inputs)
    }
}

/// True for a cell that is replaced by the default value.
fn is_empty(cell: &Cell<'_>) -> bool {
    match cell {
        Cell::Null => true,
        Cell::Text(text) => text.is_empty(),
        Cell::List(_, range) => range.is_empty(),
        _ => false,
    }
}
