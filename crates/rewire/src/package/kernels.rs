//! Kernels of a package, for people and for other programs. This one emits its own: those for the devices that are told, while
//! the device opens.

use super::PackageError;
use rewire_graph_rewrite::emit::{EmittedKernel, Target, Tuning};
use rewire_graph_rewrite::mapping::map;
use rewire_graph_rewrite::plan::Plan;
use serde::{Deserialize, Serialize};

/// Devices that a package has kernels for at most.
const MOST: usize = 16;

/// The kernels of a plan for a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetKernels {
    /// The device, for people.
    pub name: String,
    /// What it offers.
    pub target: Target,
    /// By step of the plan; `None` where the CPU has to run it.
    pub kernels: Vec<Option<EmittedKernel>>,
}

impl TargetKernels {
    /// Emits the kernels of a plan for what a device offers.
    pub fn of(plan: &Plan, name: &str, target: &Target) -> Self {
        let kernels = map(plan, target, &Tuning::default()).into_iter().map(Result::ok).collect();
        Self { name: name.to_owned(), target: target.clone(), kernels }
    }
}

/// What is read of [`TargetKernels`] before a device is open.
#[derive(Deserialize)]
struct Told {
    target: Target,
}

/// The devices that a part is for.
pub(super) fn targets(part: &[u8]) -> Result<Vec<Target>, PackageError> {
    let told: Vec<Told> = serde_json::from_slice(part).map_err(|error| PackageError::part("kernels", error))?;
    let targets: Vec<Target> = told.into_iter().map(|told| told.target).collect();
    check(&targets)?;
    Ok(targets)
}

/// Kernels are emitted for what a package tells, so that it has to be what there is.
pub(super) fn check(targets: &[Target]) -> Result<(), PackageError> {
    let wrong = |reason: String| Err(PackageError::part("kernels", reason));
    if targets.len() > MOST {
        return wrong(format!("are for {} devices: expected {MOST} at most", targets.len()));
    }
    match targets.iter().find(|target| !target.is_device()) {
        Some(other) => wrong(format!("are for what no device offers: {other:?}")),
        None => Ok(()),
    }
}
