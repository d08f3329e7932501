use crate::TensorSizeError;
use thiserror::Error;

/// Why the interpreter cannot compute an operator.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvaluateError {
    /// Its type implements none of [`Op::elementwise`](super::Op::elementwise), [`Op::evaluate`](super::Op::evaluate) and
    /// [`Op::custom`](super::Op::custom).
    #[error("it has no definition to interpret")]
    Undefined,
    /// Offsets of samples descend, or exceed the number of rows.
    #[error("offsets must ascend within {total} rows, got {actual:?}")]
    Offsets {
        /// The number of rows.
        total: usize,
        /// Neighbouring offsets.
        actual: [i64; 2],
    },
    /// A size of the result is unknown or negative.
    #[error("the size {size} is unknown or negative")]
    Size {
        /// The size.
        size: String,
    },
    /// The result exceeds the interpreter's limit.
    #[error("{elements} elements exceed the limit of {limit}")]
    TooLarge {
        /// Elements of the result.
        elements: usize,
        /// The limit.
        limit: usize,
    },
    /// Memory for the result cannot be allocated.
    #[error(transparent)]
    Memory(#[from] TensorSizeError),
    /// Code of a custom operator failed.
    #[error("{0}")]
    Own(String),
}

/// Why an operator has no gradients.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GradientError {
    /// Its type does not implement [`Op::gradient`](super::Op::gradient).
    #[error("its type does not implement `Op::gradient`")]
    Undefined,
    /// The offsets that divide its scores are unknown.
    #[error("the offsets that divide its scores are unknown")]
    Undivided,
    /// It writes rows of a state.
    #[error("it is the new value of a state")]
    State,
    /// Its image has too many pixels to index.
    #[error("its image is too large")]
    Image,
    /// Its function was read from a file and is not registered.
    #[error("its definition is unknown: bind a registry that has it")]
    Unbound,
    /// Its function has no gradient.
    #[error("its function does not implement `ScalarFunction::gradient`")]
    Function,
    /// Its function returned a wrong number of gradients.
    #[error("its function gave {given} gradients for {arguments} arguments")]
    Count {
        /// Gradients returned.
        given: usize,
        /// Arguments of the function.
        arguments: usize,
    },
    /// Code of a custom operator failed.
    #[error("{0}")]
    Own(String),
}
