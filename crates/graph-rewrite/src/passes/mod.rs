//! Passes: functions from graph to graph, each verified.

mod common_subexpressions;
mod dead_code;
mod fuse;
mod separate;
mod simplify;

pub use common_subexpressions::merge_common_subexpressions;
pub use dead_code::remove_dead_code;
pub use fuse::fuse;
pub use separate::separate;
pub use simplify::simplify;

use crate::lower::RewriteError;
use rewire_graph::Graph;

/// What a pass did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassReport {
    /// The pass.
    pub pass: &'static str,
    /// Nodes removed or replaced.
    pub changes: usize,
    /// More, for people.
    pub detail: String,
}

/// What all passes did, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One a pass.
    pub passes: Vec<PassReport>,
}

/// Runs all passes, verifying the graph after each.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
/// let y = &(&x * 2.0).silu() + 1.0;
/// let (graph, _) = rewire_graph_rewrite::optimize(scope.finish(&[("y", y)])?)?;
/// assert_eq!(graph.counts().get("pointwise"), Some(&1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RewriteError::Graph`] if `graph` does not verify, or names the pass after which it does not.
pub fn optimize(graph: Graph) -> Result<(Graph, Report), RewriteError> {
    graph.verify().map_err(|source| RewriteError::graph("input", source))?;
    let mut report = Report::default();
    let mut graph = graph;
    for pass in [merge_common_subexpressions, simplify, separate, remove_dead_code, fuse] {
        let (next, done) = pass(&graph)?;
        next.verify().map_err(|source| RewriteError::graph(done.pass, source))?;
        report.passes.push(done);
        graph = next;
    }
    Ok((graph, report))
}
