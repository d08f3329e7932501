//! Rules: patterns that are matched in a graph and replaced by checked patches.
//!
//! A pattern is a traced function, usually an operator's decomposition, so what a rule looks for is written
//! as the model writes it. Captures are the pattern's inputs.

mod patch;
mod pattern;
mod simplify;

pub use patch::{Patch, PatchError};
pub use pattern::{Match, Pattern};
pub use simplify::simplifications;

use crate::lower::RewriteError;
use crate::passes::Context;
use rewire_graph::{Graph, GraphError, NodeId, Scope, Tensor, Type, Value};

/// A rewrite of one place in a graph.
pub trait Rule: Send + Sync {
    /// The rule's name, for reports and errors.
    fn name(&self) -> &str;

    /// The patch for the value that node `root` computes, if the rule applies there.
    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Option<Patch>, GraphError>;
}

/// A rule made of two traced functions of the same captures.
///
/// `pattern` is traced for the type of the value it is compared with; it returns `None` for types the rule is
/// not made for. `replacement` gets the captures in the order of their names.
pub struct TracedRule {
    name: String,
    pattern: TracedPattern,
    replacement: TracedReplacement,
}

type TracedPattern = Box<dyn Fn(&Scope, &Type) -> Option<Tensor> + Send + Sync>;
type TracedReplacement = Box<dyn Fn(&Scope, &[Tensor]) -> Tensor + Send + Sync>;

impl TracedRule {
    /// A rule from a pattern and its replacement.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// use rewire_graph_rewrite::rules::{Rule, TracedRule, rewrite};
    /// let rule = TracedRule::new(
    ///     "silu",
    ///     |scope, ty| {
    ///         let x = scope.input("x", ty.dtype, &ty.shape);
    ///         Some(&x * &x.sigmoid())
    ///     },
    ///     |_, captures| captures[0].silu(),
    /// );
    /// let scope = Scope::new();
    /// let x = scope.input("a", DType::F32, &[4.into()]);
    /// let graph = scope.finish(&[("y", &x.sigmoid() * &x)])?;
    /// let (graph, fired) = rewrite(&graph, &[&rule as &dyn Rule])?;
    /// assert_eq!(fired, ["silu"]);
    /// assert_eq!(graph.counts().get("silu"), Some(&1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        name: &str,
        pattern: impl Fn(&Scope, &Type) -> Option<Tensor> + Send + Sync + 'static,
        replacement: impl Fn(&Scope, &[Tensor]) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.to_owned(), pattern: Box::new(pattern), replacement: Box::new(replacement) }
    }
}

impl Rule for TracedRule {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Option<Patch>, GraphError> {
        let value = Value { node: root, port: 0 };
        let Some(ty) = graph.ty(value) else { return Ok(None) };
        let Some(pattern) = Pattern::trace(graph, ty, &self.pattern)? else { return Ok(None) };
        let Some(found) = pattern.matches(graph, root) else { return Ok(None) };
        Patch::trace(graph, value, found.captures(), &self.replacement).map(Some)
    }
}

/// Applies rules wherever they match, oldest node first, until none does. Returns the rules that fired, in order.
///
/// Every patch is checked before it lands and the graph is verified at the end.
///
/// # Errors
/// [`RewriteError`] names the rule that failed, whose patch was rejected, or that does not come to an end.
pub fn rewrite(graph: &Graph, rules: &[&dyn Rule]) -> Result<(Graph, Vec<String>), RewriteError> {
    let mut context = Context::new();
    let graph = rewrite_within(graph, rules, &mut context)?;
    Ok((graph, context.fired().map(str::to_owned).collect()))
}

/// As [`rewrite`], for passes.
///
/// # Errors
/// As [`rewrite`].
pub fn rewrite_within(graph: &Graph, rules: &[&dyn Rule], context: &mut Context) -> Result<Graph, RewriteError> {
    let mut graph = graph.clone();
    let mut fired = 0;
    let limit = graph.len().saturating_mul(4) + 16;
    let mut queue: std::collections::VecDeque<NodeId> =
        graph.order().map_err(|source| RewriteError::graph("rules", source))?.into();
    while let Some(root) = queue.pop_front() {
        for rule in rules {
            let failed = |source| RewriteError::graph(rule.name(), source);
            let Some(patch) = rule.apply(&graph, root).map_err(failed)? else { continue };
            if !context.permits(rule.name(), &graph, root) {
                continue;
            }
            let readers = graph.users(root);
            let added = patch.land(&mut graph).map_err(|error| RewriteError::Unsupported {
                op: rule.name().to_owned(),
                path: String::new(),
                reason: error.to_string(),
            })?;
            fired += 1;
            if fired > limit {
                let reason = format!("the rules do not come to an end: {} fired last", rule.name());
                return Err(RewriteError::Unsupported { op: "rules".to_owned(), path: String::new(), reason });
            }
            queue.extend(added);
            queue.extend(readers);
            break;
        }
    }
    graph.verify().map_err(|source| RewriteError::graph("rules", source))?;
    Ok(graph)
}
