//! Proofs that kernels stay within their tensors.
//!
//! [`confine`] shows of every index of every kernel of a plan that it lies within the tensor's extent, whatever the inputs of
//! a run are. It knows the loops, the conditions under which an expression is evaluated, and how host values are computed and
//! what is checked of them before a run, by the [shape program](crate::plan::ShapeProgram). Indices are sums of multiples of
//! unknown integers; one is proven if multiples of known inequalities add up to its bounds.
//!
//! A load or a store that is not proven is clamped: in the dimensions in question its index becomes the nearest that the tensor
//! has, so that it reads neither another tensor nor what an earlier run left behind. A proof belongs to the plan as it is: it is
//! made when a plan is loaded, wherever the plan comes from.

mod analysis;
mod clamp;
mod entries;
mod facts;
mod form;
mod host;
mod region;
#[cfg(test)]
mod tests;

use crate::plan::{Plan, Step};
use analysis::Analysis;
use host::Host;
use region::Region;
use rewire_graph::Dim;
use rewire_graph::pointwise::ExprId;
use thiserror::Error;

/// What loads or stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// An expression.
    Load(ExprId),
    /// An output of the kernel, by its position.
    Store(usize),
}

/// A load or a store of a loop that is not proven.
#[derive(Clone, Debug)]
struct Unproven {
    place: Place,
    /// The dimensions in question.
    outside: Vec<usize>,
    /// They may have no elements.
    empty: bool,
}

/// A load or a store that was not proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clamped {
    /// Position among the steps; those of [`Plan::load`] come first.
    pub step: usize,
    /// The shape of the tensor.
    pub shape: Vec<Dim>,
    /// The dimensions that are clamped.
    pub dimensions: Vec<usize>,
}

/// A plan of which nothing can be proven.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProveError {
    /// The shape program computes a value more than once.
    #[error("the shape program gives {what} more than one value")]
    Twice {
        /// A slot or a size.
        what: String,
    },
    /// A result may have no elements where the loop that writes it has points.
    #[error("step {step} is not shown to write within its result")]
    Store {
        /// Position among the steps; those of [`Plan::load`] come first.
        step: usize,
    },
    /// An expression is simplified for a smaller loop than it is evaluated in.
    #[error("expression {expression} is a coordinate with other bounds than its loop has")]
    Coordinate {
        /// The expression.
        expression: u32,
    },
}

/// Clamps the loads and stores of a plan that are not proven to stay within their tensors, and tells which.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_graph_rewrite::{lower, optimize, prove::confine};
/// let scope = Scope::new();
/// let rows = scope.lengths("lengths", &scope.size("samples"));
/// let x = scope.input("x", DType::F32, &[rows.total.clone(), 4.into()]);
/// let graph = scope.finish(&[("sums", x.jagged_sum(&rows))])?;
/// let mut plan = lower(&optimize(graph)?.0)?;
/// let lowered = plan.clone();
/// assert!(confine(&mut plan)?.is_empty());
/// assert_eq!(plan, lowered);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ProveError`] if the plan contradicts itself.
pub fn confine(plan: &mut Plan) -> Result<Vec<Clamped>, ProveError> {
    let host = Host::new(plan)?;
    let steps = plan.load.iter().chain(&plan.steps).map(|step| unproven(step, &host));
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    let mut clamped = vec![];
    for (step, (own, found)) in plan.load.iter_mut().chain(&mut plan.steps).zip(steps).enumerate() {
        let accesses = clamp::clamp(&mut own.kernel, &found).ok_or(ProveError::Store { step })?;
        clamped.extend(accesses.into_iter().map(|(shape, dimensions)| Clamped { step, shape, dimensions }));
    }
    Ok(clamped)
}

/// What is not proven of a step's loops.
fn unproven(step: &Step, host: &Host<'_>) -> Result<Vec<Unproven>, ProveError> {
    let mut found = vec![];
    for region in &Region::of(&step.kernel) {
        found.extend(Analysis::run(step, region, host)?);
    }
    Ok(found)
}
