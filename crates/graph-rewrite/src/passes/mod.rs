//! Passes: semantics-preserving functions from graph to graph, each verified.
//!
//! A [`Pass`] runs alone or in a [`Pipeline`], which verifies the graph after each pass and reports its rewrites.
//! Passes ask their [`Context`] before every rewrite, so that single rewrites can be disabled, counted, explained and
//! bisected.

mod affine;
mod common_subexpressions;
mod constants;
mod dead_code;
mod fuse;
mod horizontal;
mod layout;
mod part;
mod partial_sums;
mod parts;
mod pipeline;
mod precompute;
mod recompute;
mod report;
mod row_products;
mod select_rows;
mod separate;
mod simplify;

pub use crate::rules::{Application, Context, NearMiss};
pub use affine::FoldAffine;
pub use common_subexpressions::CommonSubexpressions;
pub use constants::FoldConstants;
pub use dead_code::DeadCode;
pub use fuse::Fuse;
pub use horizontal::MergeSiblings;
pub use layout::CleanLayout;
pub use partial_sums::PartialSums;
pub use parts::ReadParts;
pub use pipeline::{Pipeline, optimize};
pub use precompute::Precompute;
pub use recompute::Recompute;
pub use report::{PassReport, Report};
pub use row_products::RowProducts;
pub use select_rows::SelectRows;
pub use separate::Separate;
pub use simplify::Simplify;

use crate::error::RewriteError;
use crate::rules::{Rule, rewrite_beside};
use rewire_graph::Graph;

/// The passes of [`optimize`], in order.
fn all() -> Vec<Box<dyn Pass>> {
    vec![
        Box::new(CommonSubexpressions),
        Box::new(Simplify::default()),
        // The rules above add new sizes and positions.
        Box::new(CommonSubexpressions),
        Box::new(CleanLayout),
        Box::new(ReadParts),
        Box::new(SelectRows),
        Box::new(FoldConstants),
        Box::new(FoldAffine),
        Box::new(MergeSiblings),
        Box::new(RowProducts),
        Box::new(PartialSums),
        Box::new(Separate),
        Box::new(DeadCode),
        Box::new(Precompute),
        Box::new(Fuse),
        Box::new(Recompute),
    ]
}

/// A semantics-preserving function from graph to graph.
///
/// ```
/// use rewire_graph::{DType, Graph, Scope};
/// use rewire_graph_rewrite::RewriteError;
/// use rewire_graph_rewrite::passes::{Context, Pass, Pipeline};
///
/// /// Names outputs after the operators that compute them.
/// struct Rename;
///
/// impl Pass for Rename {
///     fn name(&self) -> &str {
///         "rename"
///     }
///
///     fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
///         for (_, value) in graph.outputs() {
///             if context.permits(self.name(), graph, value.node) {
///                 // ...
///             }
///         }
///         Ok(graph.clone())
///     }
/// }
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[4.into()]);
/// let graph = scope.finish(&[("y", x.silu())])?;
/// let (_, report) = Pipeline::new(vec![Box::new(Rename)]).run(graph)?;
/// assert_eq!(report.passes[0].applications.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Pass: Send + Sync {
    /// The pass's name, for reports, errors and selection.
    fn name(&self) -> &str;

    /// The names under which rewrites of this pass are recorded: the name of the pass, unless it applies several rules.
    fn rules(&self) -> Vec<String> {
        vec![self.name().to_owned()]
    }

    /// The rewritten graph. Every rewrite requires [`Context::permits`].
    ///
    /// # Errors
    /// [`RewriteError`] if the graph is invalid or the pass fails.
    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError>;
}

/// A rule is a pass that applies it until it matches nowhere.
impl<R: Rule> Pass for R {
    fn name(&self) -> &str {
        Rule::name(self)
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        rewrite_beside(graph, &[self], context)
    }
}
