use crate::Coded;
use crate::GraphError;
use crate::op::GradientError;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a graph cannot be differentiated.
#[derive(Clone, Debug, Error, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "differentiate.")]
#[non_exhaustive]
pub enum DifferentiateError {
    /// The graph has no such output, input or parameter.
    #[error("there is no `{name}`: the graph has {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// An output, input or parameter is not a tensor of floats.
    #[error("`{name}` is {ty}: expected a device tensor of floats")]
    NotFloats {
        /// The name.
        name: String,
        /// Its type.
        ty: String,
    },
    /// An operator that the backward pass has to differentiate has no derivative.
    #[error("{op}{} has no derivative: {reason}", if path.is_empty() { String::new() } else { format!(" in `{path}`") })]
    Operator {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// The reason, or how to give the operator a derivative.
        reason: GradientError,
    },
    /// The graph, or the graph with gradients, is invalid.
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
