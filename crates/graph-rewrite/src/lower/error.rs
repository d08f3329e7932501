use rewire_graph::GraphError;
use thiserror::Error;

/// Why a graph could not be rewritten or lowered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RewriteError {
    /// The graph is wrong, or a pass made it so.
    #[error("{stage}: {source}")]
    Graph {
        /// The pass, or `input`.
        stage: String,
        /// What is wrong.
        source: Box<GraphError>,
    },
    /// A fused operator has no form that a kernel family can compute.
    #[error("{op}{}: {reason}", if path.is_empty() { String::new() } else { format!(" in `{path}`") })]
    Unsupported {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// Why.
        reason: String,
    },
    /// No pass or rule has this name.
    #[error("no pass or rule is named `{name}`; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
}

impl RewriteError {
    /// A graph that fails verification after `stage`.
    pub fn graph(stage: &str, source: GraphError) -> Self {
        Self::Graph { stage: stage.to_owned(), source: Box::new(source) }
    }
}
