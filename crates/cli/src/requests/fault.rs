use thiserror::Error;

/// Why a column cannot be read any further.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ColumnFault {
    /// There is no value.
    #[error("is null: expected {expected}")]
    Null {
        /// What should be there.
        expected: &'static str,
    },
    /// A value is no integer of 64 bits.
    #[error("is {value}: expected an integer")]
    NoInteger {
        /// The value.
        value: String,
    },
    /// A text is none.
    #[error("is not UTF-8")]
    NotUtf8,
    /// There are fewer rows than in other columns.
    #[error("ends early")]
    Ended,
    /// There are more rows than in other columns.
    #[error("has more rows than its row group")]
    TooManyRows,
    /// The values of the row, with those of columns before, take too much memory.
    #[error("makes the row take more than {limit} bytes")]
    Large {
        /// The most bytes that a row may take.
        limit: u64,
    },
    /// A list that is carried along has not one value a candidate.
    #[error("has {actual} values: expected one, or one for each of {candidates} candidates")]
    Length {
        /// Number of values.
        actual: usize,
        /// Number of candidates.
        candidates: usize,
    },
    /// A value that is carried along has another type than those before.
    #[error("is `{value}`: expected {expected}, as in rows before")]
    OtherKind {
        /// The value.
        value: String,
        /// What those before are.
        expected: &'static str,
    },
    /// The row does not have it.
    #[error("is missing")]
    Missing,
    /// Its pages are damaged, or too large.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// What is wrong with them.
        reason: String,
    },
}

impl ColumnFault {
    /// True for what is wrong with a value: the rows after it can be read.
    pub fn is_of_value(&self) -> bool {
        !matches!(self, Self::Ended | Self::TooManyRows | Self::Large { .. } | Self::Unreadable { .. })
    }
}
