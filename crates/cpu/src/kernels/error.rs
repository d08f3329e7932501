use rewire_graph::DType;
use thiserror::Error;

/// Why a kernel cannot be compiled for the CPU, or cannot run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuError {
    /// The CPU path does not implement some part of the kernel.
    #[error("the CPU cannot run this {kernel} kernel: {reason}")]
    Unsupported {
        /// The kernel family.
        kernel: &'static str,
        /// The reason.
        reason: String,
    },
    /// A custom operator failed.
    #[error("the operator `{name}` failed: {reason}")]
    Custom {
        /// The operator.
        name: String,
        /// Its error message.
        reason: String,
    },
    /// A user-defined function or custom operator panicked.
    #[error("`{name}` panicked: {reason}")]
    Panic {
        /// The function or operator.
        name: String,
        /// The panic message.
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
        /// The number in the kernel.
        expected: usize,
        /// The number in the call.
        actual: usize,
    },
    /// The element type, shape or position of an operand or output differs from the kernel's.
    #[error("{what} {position} must be {expected}, got {actual}")]
    Mismatch {
        /// `operand` or `output`.
        what: &'static str,
        /// Its position.
        position: usize,
        /// The declaration in the kernel.
        expected: String,
        /// The value in the call.
        actual: String,
    },
    /// A size is unknown, negative, or does not fit in 31 bits.
    #[error("the size {dim} of {what} has no usable value in this run: bind every input of the plan")]
    Size {
        /// The object of this size.
        what: &'static str,
        /// The size.
        dim: String,
    },
    /// A tensor has more bytes than the machine can address or allocate.
    #[error("no memory for a {dtype} tensor of shape {shape:?}")]
    Memory {
        /// Element type.
        dtype: DType,
        /// Logical shape.
        shape: Vec<usize>,
    },
    /// Memory for intermediate values cannot be allocated.
    #[error("no memory for {bytes} bytes of intermediate values")]
    Scratch {
        /// The requested size.
        bytes: usize,
    },
    /// Row offsets descend or are too few.
    #[error("operand {position} must hold {expected} ascending row offsets, got {actual}")]
    Offsets {
        /// Position of the offsets among the operands.
        position: usize,
        /// Samples plus one.
        expected: usize,
        /// The offsets found.
        actual: String,
    },
}
