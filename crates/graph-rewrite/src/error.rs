//! Errors of rewriting and lowering.

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

/// A part of a plan exceeds a limit or contradicts the rest.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{place} {reason}")]
pub struct PlanError {
    /// The part of the plan.
    pub place: String,
    /// The problem.
    pub reason: String,
}

impl PlanError {
    pub(crate) fn new(place: impl Into<String>, reason: impl ToString) -> Self {
        Self { place: place.into(), reason: reason.to_string() }
    }
}

/// Why a patch was rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatchError {
    /// A new value has another type than the old one.
    #[error("the replacement has the type {actual}, the replaced value has {expected}")]
    Type {
        /// Type of the replaced value.
        expected: String,
        /// Type of the replacement.
        actual: String,
    },
    /// The replacement and the pattern have different numbers of results.
    #[error("the replacement has {actual} results, the pattern has {expected}")]
    Results {
        /// Results of the pattern.
        expected: usize,
        /// Results of the replacement.
        actual: usize,
    },
    /// The replacement reads a capture that does not exist.
    #[error("the replacement reads `{name}`, which is not a capture of the pattern")]
    Capture {
        /// The name.
        name: String,
    },
    /// A value would depend on itself.
    #[error("the replacement depends on the value it replaces")]
    Cycle,
    /// The replacement changes nothing.
    #[error("the replacement equals the value it replaces")]
    Same,
    /// The graph rejects an operator of the replacement, or tracing it failed.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Why a graph cannot be rewritten or lowered.
#[derive(Clone, Debug, Error, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "rewrite.")]
#[non_exhaustive]
pub enum RewriteError {
    /// The graph is invalid, or a pass made it invalid.
    #[error("{stage}: {source}")]
    Graph {
        /// The pass, or `input`.
        stage: String,
        /// The reason.
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
        /// The reason.
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
