use crate::Coded;
use crate::GraphError;
use crate::op::GradientError;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a graph has no gradients.
#[derive(Clone, Debug, Error, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "differentiate.")]
#[non_exhaustive]
pub enum DifferentiateError {
    /// An output, input or parameter that the graph does not have.
    #[error("there is no `{name}`: the graph has {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// An output, input or parameter of something else.
    #[error("`{name}` is {ty}: expected a device tensor of floats")]
    NotFloats {
        /// The name.
        name: String,
        /// Its type.
        ty: String,
    },
    /// An operator on the way back has no derivative.
    #[error("{op}{} has no derivative: {reason}", if path.is_empty() { String::new() } else { format!(" in `{path}`") })]
    Operator {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// Why, or what would give it one.
        reason: GradientError,
    },
    /// The graph, or the one with gradients, is not well formed.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl Coded for DifferentiateError {
    fn code(&self) -> &'static str {
        match self {
            Self::Graph(source) => source.code(),
            other => other.into(),
        }
    }
}
