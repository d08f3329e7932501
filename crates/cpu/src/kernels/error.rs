use rewire_graph::DType;
use thiserror::Error;

/// Why a kernel cannot be compiled for the CPU, or a call of it cannot run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuError {
    /// The kernel holds something that the CPU path does not implement.
    #[error("the CPU cannot run this {kernel} kernel: {reason}")]
    Unsupported {
        /// The kernel family.
        kernel: &'static str,
        /// What is in the way.
        reason: String,
    },
    /// An operator of a user's own failed.
    #[error("the operator `{name}` failed: {reason}")]
    Custom {
        /// The operator.
        name: String,
        /// What it said.
        reason: String,
    },
    /// A function or operator of a user's own panicked.
    #[error("`{name}` panicked: {reason}")]
    Panic {
        /// The function or operator.
        name: String,
        /// What it said.
        reason: String,
    },
    /// The memory of a tensor does not hold its elements.
    #[error("the memory of a {dtype} tensor of shape {shape:?} does not hold it")]
    Content {
        /// Element type.
        dtype: DType,
        /// Logical shape.
        shape: Vec<usize>,
    },
    /// The number of operands or outputs of a call differs from the kernel's.
    #[error("the kernel takes {expected} {what}, got {actual}")]
    Count {
        /// `operands` or `outputs`.
        what: &'static str,
        /// What the kernel declares.
        expected: usize,
        /// What the call gave.
        actual: usize,
    },
    /// An operand or output has another element type, shape or place than the kernel declares.
    #[error("{what} {position} must be {expected}, got {actual}")]
    Mismatch {
        /// `operand` or `output`.
        what: &'static str,
        /// Its position.
        position: usize,
        /// What the kernel declares.
        expected: String,
        /// What the call gave.
        actual: String,
    },
    /// A size has no value, is negative, or does not fit 31 bits.
    #[error("the size {dim} of {what} has no usable value in this run: bind every input of the plan")]
    Size {
        /// What has that size.
        what: &'static str,
        /// The size.
        dim: String,
    },
    /// A tensor takes more bytes than the machine can address or give.
    #[error("no memory for a {dtype} tensor of shape {shape:?}")]
    Memory {
        /// Element type.
        dtype: DType,
        /// Logical shape.
        shape: Vec<usize>,
    },
    /// A kernel needs more memory for intermediate values than the machine can give.
    #[error("no memory for {bytes} bytes of intermediate values")]
    Scratch {
        /// What it asked for.
        bytes: usize,
    },
    /// Row offsets descend or are too few.
    #[error("operand {position} must hold {expected} ascending row offsets, got {actual}")]
    Offsets {
        /// Position of the offsets among the operands.
        position: usize,
        /// Samples plus one.
        expected: usize,
        /// What came.
        actual: String,
    },
}
