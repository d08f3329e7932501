//! Columns of labels and sample weights, for losses and metrics.

use crate::encode::{Fault, broken, fault, kind};
use crate::{Cell, Column, EncodeError};
use std::ops::Range;

/// A column of labels or weights.
#[derive(Clone, Copy, Debug)]
pub struct LabelColumn<'a> {
    /// The name of the column.
    pub name: &'a str,
    /// The separator of values in text if a row has a list of them; `None` if each row has one value.
    pub delimiter: Option<&'a str>,
}

/// The values of a column, concatenated row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelValues<T> {
    /// All values.
    pub values: Vec<T>,
    /// The number of values in each row.
    pub lengths: Vec<i64>,
}

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl LabelColumn<'_> {
    /// The values as floats. `accepts` checks each value; `expected` describes valid values in errors.
    ///
    /// # Errors
    /// [`EncodeError::Cell`] names the invalid row.
    pub fn floats(
        &self,
        column: &Column<'_>,
        rows: Range<usize>,
        expected: &str,
        accepts: impl Fn(f32) -> bool,
    ) -> Result<LabelValues<f32>, EncodeError> {
        self.read(column, rows, |number| {
            let (value, text) = match number {
                Number::Int(value) => (value as f32, value.to_string()),
                Number::Float(value) => (value as f32, value.to_string()),
            };
            if accepts(value) { Ok(value) } else { Err(fault(expected, text)) }
        })
    }

    /// The values as integers in a range; whole floats are accepted.
    ///
    /// # Errors
    /// As [`LabelColumn::floats`].
    pub fn integers(
        &self,
        column: &Column<'_>,
        rows: Range<usize>,
        expected: &str,
        accepts: impl Fn(i64) -> bool,
    ) -> Result<LabelValues<i64>, EncodeError> {
        self.read(column, rows, |number| match number {
            Number::Int(value) if accepts(value) => Ok(value),
            // Above 2^53 floats do not represent every integer.
            Number::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 && accepts(value as i64) => {
                Ok(value as i64)
            }
            Number::Int(value) => Err(fault(expected, value)),
            Number::Float(value) => Err(fault(expected, value)),
        })
    }

    fn read<T>(
        &self,
        column: &Column<'_>,
        rows: Range<usize>,
        convert: impl Fn(Number) -> Result<T, Fault>,
    ) -> Result<LabelValues<T>, EncodeError> {
        let mut all = LabelValues { values: vec![], lengths: vec![] };
        let first = rows.start;
        for row in rows {
            let before = all.values.len();
            let mut push = |number| {
                all.values.push(convert(number)?);
                Ok(())
            };
            let read = column.cell(row).ok_or_else(broken).and_then(|cell| self.push(cell, &mut push));
            read.map_err(|(expected, actual)| EncodeError::Cell {
                column: self.name.to_owned(),
                row: row - first,
                expected,
                actual,
            })?;
            all.lengths.push((all.values.len() - before) as i64);
        }
        Ok(all)
    }

    fn push(&self, cell: Cell<'_>, push: &mut dyn FnMut(Number) -> Result<(), Fault>) -> Result<(), Fault> {
        match (cell, self.delimiter) {
            (Cell::Int(value), _) => push(Number::Int(value)),
            (Cell::Float(value), _) => push(Number::Float(value)),
            (Cell::Null | Cell::Text(""), Some(_)) => Ok(()),
            (Cell::Text(text), Some(delimiter)) => text.split(delimiter).try_for_each(|text| push(number(text)?)),
            (Cell::Text(text), None) => push(number(text)?),
            (Cell::List(items, range), Some(_)) => {
                range.into_iter().try_for_each(|item| match items.cell(item).ok_or_else(broken)? {
                    Cell::Int(value) => push(Number::Int(value)),
                    Cell::Float(value) => push(Number::Float(value)),
                    Cell::Text(text) => push(number(text)?),
                    other => Err(fault("a list of numbers", kind(&other))),
                })
            }
            (other, Some(_)) => Err(fault("a list of numbers", kind(&other))),
            (other, None) => Err(fault("a number", kind(&other))),
        }
    }
}

fn number(text: &str) -> Result<Number, Fault> {
    let text = text.trim();
    let float = |_| text.parse().map(Number::Float);
    text.parse().map(Number::Int).or_else(float).map_err(|_| fault("a number", format!("`{text}`")))
}
