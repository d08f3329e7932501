use rewire_graph::limits::LimitError;
use rewire_graph::{DType, Scalar};
use rewire_graph_rewrite::device::Tile;
use rewire_graph_rewrite::lower::Refusal;

/// Why a kernel could not be emitted.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum EmitError {
    /// The kernel refers to something it does not have.
    #[error("malformed kernel: {what} {index} does not exist (there are {count})")]
    Missing {
        /// The kind of thing.
        what: &'static str,
        /// The position asked for.
        index: usize,
        /// How many there are.
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
    /// An expression has a type that its place does not take.
    #[error("malformed kernel: {place} takes {expected}, the expression is {got:?}")]
    Type {
        /// Where the expression is used.
        place: String,
        /// What it takes.
        expected: String,
        /// What came.
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
    /// A storage type that an operand on the host cannot have.
    #[error("malformed kernel: host operand {operand} is stored as {dtype}, expected i32")]
    HostType {
        /// The operand's position.
        operand: usize,
        /// What it claims.
        dtype: DType,
    },
    /// No schedule runs the nest.
    #[error("malformed kernel: {reason}")]
    Form {
        /// Why.
        reason: String,
    },
    /// A storage type that kernels only read.
    #[error("malformed kernel: output {output} is stored as {dtype}, which kernels only read")]
    ReadOnly {
        /// The output's position.
        output: usize,
        /// How it would be stored.
        dtype: DType,
    },
    /// The kernel is larger than any may be.
    #[error("malformed kernel: it {0}")]
    Size(#[from] LimitError),
    /// The target cannot hold the kernel.
    #[error("the kernel needs {needed} {what}, the target has {limit}")]
    Limit {
        /// What runs out.
        what: &'static str,
        /// How many are needed.
        needed: u64,
        /// How many there are.
        limit: u64,
    },
    /// A tile of another schedule.
    #[error("tuning: the tile is {got}, expected one of `{expected}`")]
    Tile {
        /// The kind of tile that the kernel has.
        expected: &'static str,
        /// What came.
        got: Tile,
    },
    /// A tuning that the schedule cannot run with.
    #[error("tuning: {parameter} is {got}, expected {expected}")]
    Tuning {
        /// The field.
        parameter: &'static str,
        /// What it must be.
        expected: String,
        /// What came.
        got: u32,
    },
    /// The template of the schedule did not render.
    #[error("template {template}: {reason}")]
    Template {
        /// The file.
        template: &'static str,
        /// Why.
        reason: String,
    },
    /// The WGSL of a user's function or operator is wrong.
    #[error("the WGSL of `{name}` is not valid{}: {reason}", line.map(|line| format!(" at line {line}")).unwrap_or_default())]
    Custom {
        /// The function or operator.
        name: String,
        /// The line in its WGSL, from 1.
        line: Option<u32>,
        /// What is expected, or what naga reports.
        reason: String,
    },
    /// The shader did not validate.
    #[error("the emitted shader is not valid: {reason}")]
    Shader {
        /// The line after directives, from 1.
        line: Option<u32>,
        /// What naga reports, with the place in the source.
        reason: String,
    },
}

impl From<Refusal> for EmitError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Form(reason) => Self::Form { reason },
            Refusal::Limit(limit) => Self::Size(limit),
        }
    }
}
