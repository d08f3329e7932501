use super::{Context, Pass};
use crate::error::RewriteError;
use crate::rules::{Rule, rewrite_within, simplifications};
use rewire_graph::Graph;

/// Applies rules until none matches.
pub struct Simplify {
    rules: Vec<Box<dyn Rule>>,
}

impl Default for Simplify {
    /// The [`simplifications`].
    fn default() -> Self {
        Self::new(simplifications())
    }
}

impl Simplify {
    /// A pass that applies these rules.
    pub fn new(rules: Vec<Box<dyn Rule>>) -> Self {
        Self { rules }
    }
}

impl Pass for Simplify {
    fn name(&self) -> &str {
        "simplify"
    }

    fn rules(&self) -> Vec<String> {
        self.rules.iter().map(|rule| rule.name().to_owned()).collect()
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let rules: Vec<&dyn Rule> = self.rules.iter().map(AsRef::as_ref).collect();
        rewrite_within(graph, &rules, context)
    }
}
