//! Rows of a table, column by column.

use crate::requests::Value;

/// Columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    pub rows: usize,
    pub columns: Vec<Data>,
}

impl Frame {
    /// Approximate bytes of its strings.
    pub fn bytes(&self) -> usize {
        let text = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
        let column = |data: &Data| if let Data::Values(values) = data { values.iter().map(text).sum() } else { 0 };
        self.columns.iter().map(column).sum()
    }
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Data {
    /// Of any type, unless the file is typed.
    Values(Vec<Value>),
    Integers(Vec<i64>),
    Doubles(Vec<f64>),
    Floats(Vec<f32>),
    /// One list per row, concatenated.
    Vectors {
        /// End offset of each row's elements.
        ends: Vec<usize>,
        values: Vec<f32>,
    },
}

impl Data {
    /// Rows of `width` elements.
    pub fn vectors(width: usize, values: Vec<f32>) -> Self {
        let rows = values.len().checked_div(width).unwrap_or(0);
        Self::Vectors { ends: (1..=rows).map(|row| row * width).collect(), values }
    }

    /// The elements of a row of vectors.
    pub fn vector(&self, row: usize) -> &[f32] {
        let Self::Vectors { ends, values } = self else { return &[] };
        let start = row.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        ends.get(row).and_then(|end| values.get(start..*end)).unwrap_or_default()
    }
}

#[cfg(feature = "parquet")]
impl Data {
    pub fn integers(&self) -> Option<&[i64]> {
        if let Self::Integers(values) = self { Some(values) } else { None }
    }

    pub fn doubles(&self) -> Option<&[f64]> {
        if let Self::Doubles(values) = self { Some(values) } else { None }
    }

    pub fn floats(&self) -> Option<&[f32]> {
        if let Self::Floats(values) | Self::Vectors { values, .. } = self { Some(values) } else { None }
    }
}
