//! Proofs that kernels stay within their tensors.
//!
//! [`confine`] proves for every index of every kernel of a plan that it is within the tensor's extent, for all inputs
//! of a run. It uses the loops, the conditions under which an expression is evaluated, and the definitions and checks
//! of host values in the [shape program](crate::plan::ShapeProgram). Indices are linear combinations of unknown
//! integers. An index is proven if multiples of known inequalities add up to its bounds.
//!
//! A load or a store without a proof is clamped in the dimensions concerned, so that it accesses neither another tensor
//! nor data of an earlier run. Proofs are computed when a plan is loaded, wherever it comes from.
//!
//! Steps are also proven to write all elements of their results. Otherwise a separate step first fills the result with
//! zeros, so that it shows no data of an earlier run.

mod analysis;
mod clamp;
mod clear;
mod cover;
mod entries;
mod facts;
mod form;
mod guards;
mod host;
mod region;
#[cfg(test)]
mod tests;

use crate::plan::{BufferId, Plan, PlanError, Step};
use analysis::Analysis;
use cover::{Span, covers};
use host::Host;
use region::Region;
use rewire_graph::Dim;
use rewire_graph::pointwise::ExprId;
use thiserror::Error;

/// A load or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    /// An expression.
    Load(ExprId),
    /// An output of the kernel, by its position.
    Store(usize),
}

/// A load or a store of a loop without a proof.
#[derive(Clone, Debug)]
struct Unproven {
    access: Access,
    /// The dimensions concerned.
    outside: Vec<usize>,
    /// True if their extents may be 0.
    empty: bool,
}

/// A load or a store that was clamped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clamped {
    /// Position among the steps of the original plan; steps of [`Plan::load`] come first.
    pub step: usize,
    /// The shape of the tensor.
    pub shape: Vec<Dim>,
    /// The dimensions that are clamped.
    pub dimensions: Vec<usize>,
}

/// Why a plan is rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProveError {
    /// It exceeds a limit of devices, or an expression has a wrong type.
    #[error(transparent)]
    Limit(#[from] PlanError),
    /// The shape program computes a value more than once.
    #[error("the shape program gives {what} more than one value")]
    Twice {
        /// A slot or a size.
        what: String,
    },
    /// A loop that has points writes a result that may be empty.
    #[error("step {step} is not proven to write within its result")]
    Store {
        /// Position among the steps; steps of [`Plan::load`] come first.
        step: usize,
    },
    /// An expression was simplified for a smaller loop than it is evaluated in.
    #[error("expression {expression} is a coordinate with other bounds than its loop has")]
    Coordinate {
        /// The expression.
        expression: u32,
    },
}

/// The changes to a plan for indices and results without a proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// Loads and stores that are clamped.
    pub clamped: Vec<Clamped>,
    /// Results that a separate step fills with zeros first.
    pub cleared: Vec<BufferId>,
}

impl Confined {
    /// True if everything was proven, and the plan is unchanged.
    pub fn is_empty(&self) -> bool {
        self.clamped.is_empty() && self.cleared.is_empty()
    }
}

/// Clamps loads and stores of a plan that are not proven to stay within their tensors, clears results that are not
/// proven to be written completely, and returns these changes.
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
/// [`ProveError`] if the plan is inconsistent, or [`Plan::check_limits`] rejects it.
pub fn confine(plan: &mut Plan) -> Result<Confined, ProveError> {
    plan.check_limits()?;
    let host = Host::new(plan)?;
    let proofs = plan.load.iter().chain(&plan.steps).map(|step| Proof::of(step, &host));
    let proofs = proofs.collect::<Result<Vec<_>, _>>()?;
    let mut clamped = vec![];
    for (step, (own, proof)) in plan.load.iter_mut().chain(&mut plan.steps).zip(&proofs).enumerate() {
        let accesses = clamp::clamp(&mut own.computation, &proof.unproven)
            .map_err(|reason| PlanError::new(format!("step {step}, clamped,"), reason))?
            .ok_or(ProveError::Store { step })?;
        clamped.extend(accesses.into_iter().map(|(shape, dimensions)| Clamped { step, shape, dimensions }));
    }
    let mut partial = proofs.into_iter().map(|proof| proof.partial);
    let mut cleared = vec![];
    for steps in [&mut plan.load, &mut plan.steps] {
        let found = clear::clear(steps, &plan.buffers, &mut partial);
        cleared.extend(found.map_err(|reason| PlanError::new("a step that clears a result", reason))?);
    }
    Ok(Confined { clamped, cleared })
}

/// The unproven accesses of a step.
struct Proof {
    unproven: Vec<Unproven>,
    /// Positions among [`Step::writes`] of results that may be written only in part.
    partial: Vec<usize>,
}

impl Proof {
    fn of(step: &Step, host: &Host<'_>) -> Result<Self, ProveError> {
        let mut unproven = vec![];
        let mut written: Vec<(u16, Vec<Span>)> = vec![];
        for region in &Region::of(&step.computation) {
            let findings = Analysis::run(step, region, host)?;
            unproven.extend(findings.unproven);
            written.extend(region.output.and_then(|(_, output)| Some((output.target, findings.written?))));
        }
        let results = step.computation.written();
        let is_whole = |position: &usize| {
            let own = written.iter().filter(|(target, _)| usize::from(*target) == *position);
            let parts: Vec<&[Span]> = own.map(|(_, part)| part.as_slice()).collect();
            let result = results.iter().find(|result| usize::from(result.target) == *position);
            result.is_some_and(|result| covers(result.shape, &parts))
        };
        let partial = (0..step.writes.len()).filter(|position| !is_whole(position)).collect();
        Ok(Self { unproven, partial })
    }
}
