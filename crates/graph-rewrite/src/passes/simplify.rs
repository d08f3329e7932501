use super::PassReport;
use crate::lower::RewriteError;
use crate::rules::{Rule, rewrite, simplifications};
use rewire_graph::Graph;

/// Applies the simplification rules until none matches.
///
/// # Errors
/// [`RewriteError`] if the graph is not well formed.
pub fn simplify(graph: &Graph) -> Result<(Graph, PassReport), RewriteError> {
    let rules = simplifications();
    let rules: Vec<&dyn Rule> = rules.iter().map(AsRef::as_ref).collect();
    let (graph, fired) = rewrite(graph, &rules)?;
    Ok((graph, PassReport { pass: "simplify", changes: fired.len(), detail: fired.join(", ") }))
}
