use thiserror::Error;

/// Why a column cannot be read any further.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ColumnFault {
    /// A value is missing.
    #[error("is null: expected {expected}")]
    Null {
        /// The expected value.
        expected: &'static str,
    },
    /// A value is not a 64-bit integer.
    #[error("is {value}: expected an integer")]
    NoInteger {
        /// The value.
        value: String,
    },
    /// A string is invalid.
    #[error("is not UTF-8")]
    NotUtf8,
    /// There are fewer rows than in other columns.
    #[error("ends early")]
    Ended,
    /// There are more rows than in other columns.
    #[error("has more rows than its row group")]
    TooManyRows,
    /// The row's values in all columns so far use too much memory.
    #[error("makes the row larger than {limit} bytes")]
    Large {
        /// The maximum number of bytes of a row.
        limit: u64,
    },
    /// A copied list does not have one value per candidate.
    #[error("has {actual} values: expected one, or one for each of {candidates} candidates")]
    Length {
        /// Number of values.
        actual: usize,
        /// Number of candidates.
        candidates: usize,
    },
    /// A copied value has another type than earlier ones.
    #[error("is `{value}`: expected {expected}, as in earlier rows")]
    OtherKind {
        /// The value.
        value: String,
        /// The type of the earlier ones.
        expected: &'static str,
    },
    /// The column is missing in the row.
    #[error("is missing")]
    Missing,
    /// Its pages are damaged, or too large.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// The reason.
        reason: String,
    },
}

impl ColumnFault {
    /// True if only one value is invalid: later rows can be read.
    pub fn is_of_value(&self) -> bool {
        !matches!(self, Self::Ended | Self::TooManyRows | Self::Large { .. } | Self::Unreadable { .. })
    }
}
