use crate::{ArrowArray, ArrowSchema, Column, export};
use rewire::predict::{Lists, Predicted, PredictedColumn};
use std::sync::Arc;

/// A table to export, with its memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedTable {
    /// Number of rows.
    pub rows: usize,
    /// Columns by name.
    pub columns: Vec<(String, OwnedValues)>,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValues {
    /// 64-bit integers.
    I64(Vec<i64>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// Strings; there is one offset more than rows.
    Text {
        /// The start of each string, and the end of the last one.
        offsets: Vec<i64>,
        /// All strings, concatenated.
        text: String,
    },
    /// Lists of floats; there is one offset more than rows.
    Lists {
        /// The start of each list, and the end of the last one.
        offsets: Vec<i64>,
        /// The values of all lists.
        values: Vec<f32>,
    },
}

impl OwnedTable {
    /// Predictions by the names of a model's outputs. `index` names a column with the table row of each prediction.
    pub fn of_predicted(outputs: &[PredictedColumn], predicted: Predicted, index: Option<String>) -> Self {
        let Predicted { counts, columns } = predicted;
        let column = |(output, Lists { ends, values }): (&PredictedColumn, Lists)| {
            let values = match output.is_list {
                true => {
                    let offsets = std::iter::once(0).chain(ends.into_iter().map(|end| end as i64)).collect();
                    OwnedValues::Lists { offsets, values }
                }
                false => OwnedValues::F32(values),
            };
            (output.name.clone(), values)
        };
        let mut columns: Vec<_> = outputs.iter().zip(columns).map(column).collect();
        columns.extend(index.map(|name| (name, OwnedValues::I64(rows_of(&counts)))));
        Self { rows: counts.iter().sum(), columns }
    }

    /// Exports it as a struct array, which keeps it alive. The consumer calls `release` of both structures.
    pub fn export(self: &Arc<Self>) -> (ArrowSchema, ArrowArray) {
        export(self, self.rows, |table| table.columns.iter().map(|(name, values)| values.column(name)).collect())
    }
}

/// The row number of each entry, given the number of entries per row.
pub fn rows_of(counts: &[usize]) -> Vec<i64> {
    let rows = counts.iter().enumerate();
    rows.flat_map(|(row, &count)| std::iter::repeat_n(row as i64, count)).collect()
}

impl OwnedValues {
    fn column(&self, name: &str) -> Column<'_> {
        match self {
            Self::I64(values) => Column::values(name, values),
            Self::F32(values) => Column::values(name, values),
            Self::F64(values) => Column::values(name, values),
            Self::Text { offsets, text } => Column::texts(name, offsets, text),
            Self::Lists { offsets, values } => Column::lists(name, offsets, Column::values("item", values)),
        }
    }
}
