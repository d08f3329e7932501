use crate::plan::PlanError;
use crate::rules::PatchError;
use rewire_graph::Coded;
use rewire_graph::limits::LimitError;
use rewire_graph::{Graph, GraphError, NodeId};
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a body cannot be lowered to a kernel.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotLowerable {
    /// No schedule supports its form.
    #[error("{0}")]
    Form(String),
    /// It exceeds a limit of kernels.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl From<String> for NotLowerable {
    fn from(reason: String) -> Self {
        Self::Form(reason)
    }
}

impl From<&str> for NotLowerable {
    fn from(reason: &str) -> Self {
        Self::Form(reason.to_owned())
    }
}

/// Why a graph cannot be rewritten or lowered.
#[derive(Clone, Debug, Error, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "rewrite.")]
#[non_exhaustive]
pub enum RewriteError {
    /// The graph is invalid, or a pass made it so.
    #[error("{stage}: {source}")]
    Graph {
        /// The pass, or `input`.
        stage: String,
        /// What is wrong.
        source: Box<GraphError>,
    },
    /// No schedule supports the form of a fused operator.
    #[error("{op}{}: {reason}", if path.is_empty() { String::new() } else { format!(" in `{path}`") })]
    Unsupported {
        /// The operator.
        op: String,
        /// Module path; empty at top level.
        path: String,
        /// Why.
        reason: String,
    },
    /// The plan exceeds a limit of devices.
    #[error(transparent)]
    Limit(#[from] PlanError),
    /// A rule failed, or its patch was rejected.
    #[error("rule `{rule}` at {op} %{node}{}: {source}", if path.is_empty() { String::new() } else { format!(" in `{path}`") })]
    Rule {
        /// The rule.
        rule: String,
        /// The operator it was applied to.
        op: String,
        /// The operator's number.
        node: usize,
        /// Module path; empty at top level.
        path: String,
        /// What is wrong.
        source: Box<PatchError>,
    },
    /// The rules do not terminate: they undo each other.
    #[error("the rules do not terminate: after {rewrites} rewrites `{rule}` fired again; narrow it by a condition")]
    Endless {
        /// The rule that fired last.
        rule: String,
        /// Number of rewrites so far.
        rewrites: usize,
    },
    /// No pass or rule has this name.
    #[error("no pass or rule is named `{name}`; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
}

impl Coded for RewriteError {
    fn code(&self) -> &'static str {
        match self {
            Self::Graph { source, .. } => source.code(),
            Self::Limit(_) => "plan.limit",
            other => other.into(),
        }
    }
}

impl RewriteError {
    /// The error for a graph that fails verification after `stage`.
    pub fn graph(stage: &str, source: GraphError) -> Self {
        Self::Graph { stage: stage.to_owned(), source: Box::new(source) }
    }

    pub(crate) fn rule(rule: &str, graph: &Graph, node: NodeId, source: PatchError) -> Self {
        let found = graph.node(node);
        Self::Rule {
            rule: rule.to_owned(),
            op: found.map_or_else(String::new, |node| node.op.name().to_owned()),
            node: node.number(),
            path: found.map_or_else(String::new, |node| node.path.clone()),
            source: Box::new(source),
        }
    }
}
