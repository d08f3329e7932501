use super::{Context, Pass};
use crate::error::RewriteError;
use crate::rules::{MERGE_EQUAL, merge_equal};
use rewire_graph::Graph;

/// Replaces equal operators with equal operands by the first of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommonSubexpressions;

impl Pass for CommonSubexpressions {
    fn name(&self) -> &str {
        MERGE_EQUAL
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        merge_equal(graph, context)
    }
}
