use std::fmt;

/// An applied rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// The rule, or the pass if it rewrites without rules.
    pub rule: String,
    /// The operator that was rewritten.
    pub op: String,
    /// Its number, [`rewire_graph::NodeId::number`], in the pass's input graph or as added by the pass.
    pub node: usize,
    /// Its module path.
    pub path: String,
}

/// A rewrite that almost applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The rule, or the pass if it rewrites without rules.
    pub rule: String,
    /// The operator that would have been rewritten.
    pub op: String,
    /// Its number, [`rewire_graph::NodeId::number`], in the pass's input graph or as added by the pass.
    pub node: usize,
    /// Its module path.
    pub path: String,
    /// Why it did not apply.
    pub reason: String,
}

/// `silu %12 in layers.0`
struct NodeLabel<'a>(&'a str, usize, &'a str);

impl fmt::Display for NodeLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(op, node, path) = self;
        write!(f, "{op} %{node}")?;
        if path.is_empty() { Ok(()) } else { write!(f, " in {path}") }
    }
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, NodeLabel(&self.op, self.node, &self.path))
    }
}

impl fmt::Display for NearMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: not {}: {}", self.rule, NodeLabel(&self.op, self.node, &self.path), self.reason)
    }
}
