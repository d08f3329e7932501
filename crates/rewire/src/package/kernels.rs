//! Kernels of a package, as readable WGSL. This program emits its own kernels for the listed devices while the device
//! opens.

use super::PackageError;
use super::error::decoded;
use rewire_graph_rewrite::device::{EmittedKernel, Target, Tuning};
use rewire_runtime::{DeviceTunings, GivenKernels};
use serde::{Deserialize, Serialize};
#[cfg(feature = "emit")]
use {
    rewire_emit::emit,
    rewire_emit::mapping::map,
    rewire_graph_rewrite::plan::{Plan, Step},
};

/// The maximum number of devices in a package.
const MOST: usize = 16;

/// The kernels of a plan for a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetKernels {
    /// The device, in readable form.
    pub name: String,
    /// Its limits and features.
    pub target: Target,
    /// One per step of the plan; `None` if the step runs on the CPU.
    pub kernels: Vec<Option<EmittedKernel>>,
    /// Tunings measured on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunings: Option<DeviceTunings>,
    /// Kernels with these tunings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<TunedKernel>,
}

/// A kernel with a measured tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedKernel {
    /// Position in the plan.
    pub step: usize,
    /// The sizes that it is for, as powers of two: each size is at most this number and above half of it.
    pub sizes: String,
    /// The tuning.
    pub tuning: Tuning,
    /// The kernel.
    pub kernel: EmittedKernel,
}

#[cfg(feature = "emit")]
impl TargetKernels {
    /// Emits the kernels of a plan for a target.
    pub fn of(plan: &Plan, name: &str, target: &Target) -> Self {
        let kernels = map(plan, target, &Tuning::default()).into_iter().map(Result::ok).collect();
        Self { name: name.to_owned(), target: target.clone(), kernels, tunings: None, tuned: vec![] }
    }

    /// Adds tunings measured on the device, and the kernels of a loaded [`Model::plan`](rewire_runtime::Model::plan) with
    /// them.
    #[must_use]
    pub fn with_tunings(self, plan: &Plan, tunings: DeviceTunings) -> Self {
        let target = &self.target;
        let of_step = |(step, own): (usize, &'_ Step)| {
            let known = tunings.of(&own.computation).into_iter();
            let emitted = known.filter_map(move |(sizes, tuning)| {
                let kernel = emit(&own.computation, target, &tuning).ok()?;
                Some(TunedKernel { step, sizes, tuning, kernel })
            });
            emitted.collect::<Vec<_>>()
        };
        let tuned = plan.steps.iter().enumerate().flat_map(of_step).collect();
        Self { tunings: Some(tunings), tuned, ..self }
    }
}

/// The part of [`TargetKernels`] that is read before a device opens. Without `emit` these are the kernels, for which there are no other
/// tunings.
#[derive(Deserialize)]
pub(super) struct Told {
    pub target: Target,
    #[cfg(feature = "emit")]
    #[serde(default)]
    tunings: Option<DeviceTunings>,
    #[cfg(not(feature = "emit"))]
    kernels: Vec<Option<EmittedKernel>>,
}

#[cfg(feature = "emit")]
impl Told {
    /// The kernels, if they were read.
    pub fn given(&mut self) -> Option<GivenKernels> {
        None
    }

    /// The tunings, if they were read.
    pub fn tunings(&mut self) -> Option<DeviceTunings> {
        self.tunings.take()
    }

    fn checked(&self) -> (&Target, Option<&DeviceTunings>) {
        (&self.target, self.tunings.as_ref())
    }
}

#[cfg(not(feature = "emit"))]
impl Told {
    /// The kernels.
    pub fn given(&mut self) -> Option<GivenKernels> {
        Some(GivenKernels { target: self.target.clone(), kernels: std::mem::take(&mut self.kernels) })
    }

    /// None.
    pub fn tunings(&mut self) -> Option<DeviceTunings> {
        None
    }

    fn checked(&self) -> (&Target, Option<&DeviceTunings>) {
        (&self.target, None)
    }
}

/// The devices of a part, with their measured tunings.
pub(super) fn told(part: &[u8]) -> Result<Vec<Told>, PackageError> {
    let told: Vec<Told> = decoded("kernels", part)?;
    check(told.iter().map(Told::checked))?;
    Ok(told)
}

/// Kernels are emitted for the target in the package, so it must be consistent.
pub(super) fn check<'a>(
    devices: impl ExactSizeIterator<Item = (&'a Target, Option<&'a DeviceTunings>)>,
) -> Result<(), PackageError> {
    let wrong = |reason: String| PackageError::part("kernels", reason);
    if devices.len() > MOST {
        return Err(wrong(format!("are for {} devices: expected {MOST} at most", devices.len())));
    }
    for (target, tunings) in devices {
        if !target.is_device() {
            return Err(wrong(format!("are for a target that no device can have: {target:?}")));
        }
        tunings.map_or(Ok(()), DeviceTunings::check).map_err(wrong)?;
    }
    Ok(())
}
