use rewire_graph::limits::LimitError;
use rewire_graph::{DType, Scalar};
use rewire_graph_rewrite::device::Tile;
use rewire_graph_rewrite::lower::NotLowerable;

/// Why a kernel cannot be emitted.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum EmitError {
    /// The kernel refers to something that does not exist.
    #[error("malformed kernel: {what} {index} does not exist (there are {count})")]
    Missing {
        /// The kind of object.
        what: &'static str,
        /// The position.
        index: usize,
        /// The number of existing objects.
        count: usize,
    },
    /// An index has the wrong number of dimensions.
    #[error("malformed kernel: {what} {position} has {expected} dimensions, its index has {got}")]
    Rank {
        /// Operand or output.
        what: &'static str,
        /// Its position.
        position: usize,
        /// Dimensions of the tensor.
        expected: usize,
        /// Dimensions of the index.
        got: usize,
    },
    /// An expression has a wrong type.
    #[error("malformed kernel: {place} takes {expected}, the expression is {got:?}")]
    Type {
        /// Where the expression is used.
        place: String,
        /// The expected type.
        expected: String,
        /// The actual type.
        got: Scalar,
    },
    /// A function is not defined for its argument.
    #[error("malformed kernel: {function} is not defined for {scalar:?}")]
    Undefined {
        /// The function.
        function: &'static str,
        /// The type of the argument.
        scalar: Scalar,
    },
    /// An operand on the host has an invalid storage type.
    #[error("malformed kernel: host operand {operand} is stored as {dtype}, expected i32")]
    HostType {
        /// The operand's position.
        operand: usize,
        /// The storage type.
        dtype: DType,
    },
    /// No schedule supports the nest.
    #[error("malformed kernel: {reason}")]
    Form {
        /// Why.
        reason: String,
    },
    /// Kernels cannot write the storage type of an output.
    #[error("malformed kernel: output {output} is stored as {dtype}, which kernels only read")]
    ReadOnly {
        /// The output's position.
        output: usize,
        /// The storage type.
        dtype: DType,
    },
    /// The kernel exceeds a size limit.
    #[error("malformed kernel: it {0}")]
    Size(#[from] LimitError),
    /// The kernel exceeds a limit of the target.
    #[error("the kernel needs {needed} {what}, the target has {limit}")]
    Limit {
        /// The resource.
        what: &'static str,
        /// The amount needed.
        needed: u64,
        /// The amount available.
        limit: u64,
    },
    /// The tile is for another schedule.
    #[error("tuning: the tile is {got}, expected one of `{expected}`")]
    Tile {
        /// The type of the kernel's tiles.
        expected: &'static str,
        /// The tile.
        got: Tile,
    },
    /// The schedule does not support a value of the tuning.
    #[error("tuning: {parameter} is {got}, expected {expected}")]
    Tuning {
        /// The field.
        parameter: &'static str,
        /// The valid values.
        expected: String,
        /// The value.
        got: u32,
    },
    /// The template of the schedule cannot be rendered.
    #[error("template {template}: {reason}")]
    Template {
        /// The file.
        template: &'static str,
        /// Why.
        reason: String,
    },
    /// The WGSL of a user-defined function or custom operator is invalid.
    #[error("the WGSL of `{name}` is not valid{}: {reason}", line.map(|line| format!(" at line {line}")).unwrap_or_default())]
    Custom {
        /// The function or operator.
        name: String,
        /// The line in its WGSL, from 1.
        line: Option<u32>,
        /// The reason, or naga's message.
        reason: String,
    },
    /// The shader is invalid.
    #[error("the emitted shader is not valid: {reason}")]
    Shader {
        /// The line, counted from 1 after directives.
        line: Option<u32>,
        /// naga's message, with the position in the source.
        reason: String,
    },
}

impl From<NotLowerable> for EmitError {
    fn from(refusal: NotLowerable) -> Self {
        match refusal {
            NotLowerable::Form(reason) => Self::Form { reason },
            NotLowerable::Limit(limit) => Self::Size(limit),
        }
    }
}
