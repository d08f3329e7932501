use thiserror::Error;

/// Why a saved map, or a change of a map, is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// A part is missing.
    #[error("it has no `{part}`")]
    Missing {
        /// The part.
        part: &'static str,
    },
    /// A part has another length than the other parts require.
    #[error("`{part}` has {actual} values: expected {expected}")]
    Length {
        /// The part.
        part: &'static str,
        /// The expected number of values.
        expected: String,
        /// The actual number.
        actual: usize,
    },
    /// A count or a step is out of range.
    #[error("`{part}` has the value {actual}: expected one from 0 to {}", u32::MAX)]
    Value {
        /// The part.
        part: &'static str,
        /// The value.
        actual: i64,
    },
    /// An id has two rows.
    #[error("the id {id} has two rows: expected each id once")]
    Twice {
        /// The id.
        id: i64,
    },
    /// A row is outside of the table.
    #[error("row {row} is not one of {rows} rows with ids")]
    Row {
        /// The row.
        row: u32,
        /// The number of rows.
        rows: u32,
    },
    /// The id of a row differs from the one that the change expects.
    #[error("the id of row {row} before the change differs from the one in the change")]
    Other {
        /// The row.
        row: u32,
    },
}
