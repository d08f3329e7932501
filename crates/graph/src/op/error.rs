use crate::TensorSizeError;
use thiserror::Error;

/// Why the interpreter has no value of an operator.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvaluateError {
    /// Its type implements none of [`Op::elementwise`](super::Op::elementwise), [`Op::evaluate`](super::Op::evaluate) and
    /// [`Op::custom`](super::Op::custom).
    #[error("it has no definition to interpret")]
    Undefined,
    /// Offsets of samples descend or end beyond the rows.
    #[error("offsets must ascend within {total} rows, got {actual:?}")]
    Offsets {
        /// The number of rows.
        total: usize,
        /// Neighbouring offsets.
        actual: [i64; 2],
    },
    /// A size of the result has no value, or a negative one.
    #[error("the size {size} is unknown or negative")]
    Size {
        /// The size.
        size: String,
    },
    /// The result is larger than the interpreter computes.
    #[error("{elements} elements exceed the limit of {limit}")]
    TooLarge {
        /// Elements of the result.
        elements: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no memory for the result.
    #[error(transparent)]
    Memory(#[from] TensorSizeError),
    /// Code of an operator outside this crate failed.
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
    /// No offsets are known that divide its scores.
    #[error("how its scores are divided is not known")]
    Undivided,
    /// It writes rows of a state.
    #[error("it is what a state becomes after a run")]
    State,
    /// The pixels of its image cannot be counted.
    #[error("its image is too large")]
    Image,
    /// A function was read from a file and has no definition here.
    #[error("its definition is not known: bind a registry that has it")]
    Unbound,
    /// A function has no gradient.
    #[error("its function does not implement `ScalarFunction::gradient`")]
    Function,
    /// A function returned gradients of another number of arguments.
    #[error("its function gave {given} gradients for {arguments} arguments")]
    Count {
        /// Gradients that it returned.
        given: usize,
        /// Arguments that it takes.
        arguments: usize,
    },
    /// Code of an operator outside this crate failed.
    #[error("{0}")]
    Own(String),
}
