//! The steps of a plan that a target supports.

use crate::{EmitError, emit};
use rewire_graph_rewrite::device::{EmittedKernel, Target, Tuning};
use rewire_graph_rewrite::plan::{Plan, Step};
use thiserror::Error;

/// A step that a target does not support.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("step {step} ({name}, `{path}`): {reason}; the CPU can run it")]
pub struct NotEmitted {
    /// Position in the plan.
    pub step: usize,
    /// Name of the step.
    pub name: String,
    /// Module path of the step.
    pub path: String,
    /// The error, such as a missing feature, or too many bindings, invocations or bytes of workgroup memory.
    pub reason: EmitError,
}

/// The kernel of every step of a plan for a target, or why the target does not support it.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_graph_rewrite::device::{Target, Tuning};
/// use rewire_emit::mapping::map;
/// use rewire_graph_rewrite::{lower, optimize};
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
/// let weight = scope.parameter("weight", DType::F32, &[16.into(), 8.into()]);
/// let graph = scope.finish(&[("y", x.linear(&weight, None))])?;
/// let plan = lower(&optimize(graph)?.0)?;
/// assert!(map(&plan, &Target::BASELINE, &Tuning::default()).iter().all(Result::is_ok));
///
/// let small = Target { workgroup_bytes: 1024, ..Target::BASELINE };
/// let error = map(&plan, &small, &Tuning::default()).into_iter().find_map(Result::err);
/// assert!(error.is_some_and(|error| error.to_string().starts_with("step 0 (matmul, ``): the kernel needs")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn map(plan: &Plan, target: &Target, tuning: &Tuning) -> Vec<Result<EmittedKernel, NotEmitted>> {
    let steps = plan.steps.iter().enumerate();
    steps.map(|(position, step)| map_step(position, step, target, tuning)).collect()
}

/// The kernel of the step at `position` of a plan for a target.
///
/// # Errors
/// [`NotEmitted`] with the reason why the target does not support it.
pub fn map_step(position: usize, step: &Step, target: &Target, tuning: &Tuning) -> Result<EmittedKernel, NotEmitted> {
    emit(&step.computation, target, tuning).map_err(|reason| NotEmitted {
        step: position,
        name: step.name.clone(),
        path: step.path.clone(),
        reason,
    })
}
