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
//!
//! What a step writes is proven to be all of its results. A result of which it is not is filled with zeros before, by a step
//! of its own, so that none shows what an earlier run left in its memory.

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

/// What loads or stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    /// An expression.
    Load(ExprId),
    /// An output of the kernel, by its position.
    Store(usize),
}

/// A load or a store of a loop that is not proven.
#[derive(Clone, Debug)]
struct Unproven {
    access: Access,
    /// The dimensions in question.
    outside: Vec<usize>,
    /// They may have no elements.
    empty: bool,
}

/// A load or a store that was not proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clamped {
    /// Position among the steps of the plan as it was; those of [`Plan::load`] come first.
    pub step: usize,
    /// The shape of the tensor.
    pub shape: Vec<Dim>,
    /// The dimensions that are clamped.
    pub dimensions: Vec<usize>,
}

/// A plan of which nothing can be proven.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProveError {
    /// It is larger than any device runs, or expressions do not have the types that they are taken in.
    #[error(transparent)]
    Limit(#[from] PlanError),
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

/// What of a plan was not proven, and what was done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// Loads and stores that are clamped.
    pub clamped: Vec<Clamped>,
    /// Results that a step of their own fills with zeros first.
    pub cleared: Vec<BufferId>,
}

impl Confined {
    /// True if all was proven, so that the plan is as it was.
    pub fn is_empty(&self) -> bool {
        self.clamped.is_empty() && self.cleared.is_empty()
    }
}

/// Clamps the loads and stores of a plan that are not proven to stay within their tensors, clears the results that are not
/// proven to be written as a whole, and tells which.
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
/// [`ProveError`] if the plan contradicts itself, or [`Plan::check_limits`] refuses it.
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

/// What is not proven of a step.
struct Proof {
    unproven: Vec<Unproven>,
    /// Positions among [`Step::writes`] of what may be written in part.
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
