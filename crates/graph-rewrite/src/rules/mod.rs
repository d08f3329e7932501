//! Rules: patterns that are matched in a graph and replaced by checked patches.
//!
//! A [`Pattern`] and its replacement are traced functions, so both are written like models. [`PatternScope`] provides
//! placeholders: captures of any type or of a shape with variable sizes, constants of any value, operators with any
//! attributes, alternatives, optional and repeated parts. Operands of commutative operators match in either order. A
//! pattern may have several results, which are replaced together.
//!
//! A [`TracedRule`] consists of a pattern, conditions on the [`Match`], and a replacement. The replacement may also be
//! a function that returns a [`Patch`] or `None`. Anything else that creates patches can implement [`Rule`].
//!
//! ```
//! use rewire_graph::{DType, Scope};
//! use rewire_graph_rewrite::rules::{TracedRule, rewrite};
//!
//! // x * a * b becomes x * (a b), unless that overflows.
//! let rule = TracedRule::new(
//!     "two factors",
//!     |p| vec![&(&p.any("x", DType::F32) * &p.number("a")) * &p.number("b")],
//!     |r| {
//!         let factor = |name: &str| r.matched().number(name).unwrap_or(1.0);
//!         vec![&r.tensor("x") * (factor("a") * factor("b"))]
//!     },
//! )?
//! .when("the product of the factors overflows", |matched| {
//!     matched.number("a").zip(matched.number("b")).is_some_and(|(a, b)| (a * b).abs() < 1e30)
//! });
//!
//! let scope = Scope::new();
//! let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
//! let y = &(&(&x * 2.0) * 3.0) * 4.0;
//! let (graph, fired) = rewrite(&scope.finish(&[("y", y)])?, &[&rule])?;
//! assert_eq!(fired, ["two factors", "two factors"]);
//! assert_eq!(graph.counts().get("mul"), Some(&1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod context;
mod decompose;
mod equal;
mod masked_softmax;
mod matched;
mod matching;
mod mismatch;
mod patch;
mod pattern;
mod placeholder;
mod record;
mod rewrite;
mod round_trip;
mod simplify;
mod spread_softmax;
mod traced;
mod unify;

pub use crate::error::PatchError;
pub use context::Context;
pub use decompose::Decompose;
pub(crate) use equal::{MERGE_EQUAL, merge_equal};
pub use matched::Match;
pub use mismatch::Mismatch;
pub use patch::{Patch, Replacement};
pub use pattern::{Pattern, PatternScope};
pub use record::{Application, NearMiss};
pub(crate) use rewrite::rewrite_beside;
pub use rewrite::{rewrite, rewrite_within};
pub use simplify::simplifications;
pub use spread_softmax::SpreadSoftmax;
pub use traced::TracedRule;

use crate::error::RewriteError;
use rewire_graph::{Graph, GraphError, NodeId, Scope, Tensor, Value};

/// A rewrite of one node of a graph.
pub trait Rule: Send + Sync {
    /// The rule's name, for reports and errors.
    fn name(&self) -> &str;

    /// The names of operators at which [`Rule::apply`] may succeed; `None` for any.
    fn roots(&self) -> Option<Vec<String>> {
        None
    }

    /// The number of operators below a node that [`Rule::apply`] examines. The rule is applied again after changes
    /// within this distance.
    fn reach(&self) -> usize {
        1
    }

    /// Applies the rule at the value of node `root`.
    ///
    /// # Errors
    /// [`GraphError`] if the replacement cannot be traced.
    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError>;
}

/// The result of applying a rule.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// A match with its replacement.
    Found(Patch),
    /// A near miss, with the reason.
    Near(String),
    /// No match.
    Nothing,
}

impl Attempt {
    /// A patch that replaces the value of a node by a function of other values; no match if the function returns `None`.
    ///
    /// # Errors
    /// [`GraphError`] if the replacement cannot be traced.
    pub fn replace(
        graph: &Graph,
        node: NodeId,
        read: &[Value],
        replacement: impl FnOnce(&Scope, &[Tensor]) -> Option<Tensor>,
    ) -> Result<Self, GraphError> {
        let patch = Patch::of(graph, Value { node, port: 0 }, read, replacement)?;
        Ok(patch.map_or(Self::Nothing, Self::Found))
    }
}

/// A pattern in canonical form, after common subexpressions and the [`simplifications`].
fn canonical(pattern: &Graph) -> Result<Graph, RewriteError> {
    let merged = merge_equal(pattern, &mut Context::new())?;
    let rules = simplifications();
    let rules: Vec<&dyn Rule> = rules.iter().map(AsRef::as_ref).collect();
    rewrite_within(&merged, &rules, &mut Context::new())
}
