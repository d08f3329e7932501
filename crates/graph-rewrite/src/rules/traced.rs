use super::{Attempt, Match, Patch, Pattern, PatternScope, Replacement, Rule};
use rewire_graph::{Graph, GraphError, NodeId, Tensor};

/// A rule that consists of a pattern and a function of the match.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_graph_rewrite::rules::{TracedRule, rewrite};
/// let rule = TracedRule::new(
///     "relu",
///     |p| vec![p.any("x", DType::F32).clamp(Some(0.0), None)],
///     |r| vec![r.tensor("x").relu()],
/// )?;
/// let scope = Scope::new();
/// let x = scope.input("a", DType::F32, &[4.into()]);
/// let y = scope.scalar(DType::F32, 0.0).maximum(&x);
/// let graph = scope.finish(&[("y", y)])?;
/// let (graph, fired) = rewrite(&graph, &[&rule])?;
/// assert_eq!(fired, ["relu"]);
/// assert_eq!(graph.counts().get("relu"), Some(&1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TracedRule {
    name: String,
    pattern: Pattern,
    conditions: Vec<(String, Condition)>,
    patch: MatchedPatch,
}

type Condition = Box<dyn Fn(&Match) -> bool + Send + Sync>;
type MatchedPatch = Box<dyn Fn(&Match) -> Result<Option<Patch>, GraphError> + Send + Sync>;

impl TracedRule {
    /// A rule from a pattern and its replacement, which returns one tensor per result of the pattern.
    ///
    /// # Errors
    /// [`GraphError`] if tracing the pattern fails or it has no result.
    pub fn new(
        name: &str,
        pattern: impl Fn(&PatternScope) -> Vec<Tensor>,
        replacement: impl Fn(&Replacement) -> Vec<Tensor> + Send + Sync + 'static,
    ) -> Result<Self, GraphError> {
        Self::with_patch(name, pattern, move |matched| Patch::trace(matched, &replacement).map(Some))
    }

    /// A rule from a pattern and a function that returns the patch for a match, or `None`.
    ///
    /// # Errors
    /// As [`TracedRule::new`].
    pub fn with_patch(
        name: &str,
        pattern: impl Fn(&PatternScope) -> Vec<Tensor>,
        patch: impl Fn(&Match) -> Result<Option<Patch>, GraphError> + Send + Sync + 'static,
    ) -> Result<Self, GraphError> {
        Ok(Self::of(name, Pattern::trace(pattern)?, patch))
    }

    pub(super) fn of(
        name: &str,
        pattern: Pattern,
        patch: impl Fn(&Match) -> Result<Option<Patch>, GraphError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.to_owned(), pattern, conditions: vec![], patch: Box::new(patch) }
    }

    /// Restricts the rule to matches that `condition` accepts. `otherwise` is the reported reason for rejected matches.
    /// If the pattern matches in several ways, all are tried.
    #[must_use]
    pub fn when(mut self, otherwise: &str, condition: impl Fn(&Match) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push((otherwise.to_owned(), Box::new(condition)));
        self
    }

    fn accept(&self, found: &Match) -> Result<(), String> {
        let failed = self.conditions.iter().find(|(_, condition)| !condition(found));
        failed.map_or(Ok(()), |(otherwise, _)| Err(otherwise.clone()))
    }
}

impl Rule for TracedRule {
    fn name(&self) -> &str {
        &self.name
    }

    fn roots(&self) -> Option<Vec<String>> {
        self.pattern.roots()
    }

    fn reach(&self) -> usize {
        self.pattern.depth()
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let found = match self.pattern.find(graph, root, &|matched| self.accept(matched)) {
            Ok(found) => found,
            Err(mismatch) => return Ok(mismatch.near().map_or(Attempt::Nothing, Attempt::Near)),
        };
        // The canonical form of a pattern may already be its replacement.
        let patch = (self.patch)(&found)?.filter(|patch| patch.changes(graph));
        Ok(patch.map_or(Attempt::Nothing, Attempt::Found))
    }
}
