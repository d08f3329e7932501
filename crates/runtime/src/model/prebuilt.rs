//! Prebuilt kernels that are shipped with a model, for builds without an emitter.

use super::load::{GivenKernels, ModelOptions};
use super::pipelines::Shader;
use crate::Gpu;
use rewire_graph::Dim;
use rewire_graph_rewrite::device::{BindingChunks, EmittedKernel, Target, Tuning};
use rewire_graph_rewrite::plan::{Computation, Plan, Step};
use std::borrow::Cow;
use std::convert::Infallible;

/// No emitter: tunings measured with one are not used.
pub(crate) const EMITTER: &str = "";

/// A kernel whose shader the device parses.
#[derive(Clone, Debug)]
pub(crate) struct ParsedKernel {
    pub kernel: EmittedKernel,
}

impl ParsedKernel {
    /// Wraps a kernel.
    pub fn parse(kernel: EmittedKernel) -> Result<Self, Infallible> {
        Ok(Self { kernel })
    }
}

/// The tuning itself: prebuilt kernels have no other.
pub(super) fn suited(tuning: Tuning, _: &Computation, _: &Target, _: impl Fn(&Dim) -> Option<u64>) -> Tuning {
    tuning
}

/// As [`suited`].
pub(super) fn of_family(tuning: Tuning, _: &Computation, _: &Target) -> Tuning {
    tuning
}

/// Only the given tuning.
pub(super) fn candidates(tuning: &Tuning, _: &Computation, _: &Target) -> Vec<Tuning> {
    vec![*tuning]
}

/// Only the default tuning.
pub(super) fn families(_: &Computation, _: &Target) -> Vec<Tuning> {
    vec![Tuning::default()]
}

/// The device, limited to the last target of the prebuilt kernels that it satisfies. Its cooperative matrices are not
/// tested.
pub(super) async fn usable(gpu: Gpu, plan: &Plan, options: &ModelOptions) -> Gpu {
    let plain = |given: &&GivenKernels| given.target.matrix == 0 && given.kernels.len() == plan.steps.len();
    let target = |given: &GivenKernels| Target { software: gpu.target().software, ..given.target.clone() };
    let mut fitting = options.kernels.iter().filter(plain).map(target);
    let found = fitting.rfind(|target| gpu.target().within(target) == *target);
    found.map_or_else(|| gpu.clone(), |target| gpu.restricted(&target))
}

/// The kernel of a step.
pub(super) fn emit_step(
    options: &ModelOptions,
    position: usize,
    _: &Step,
    target: &Target,
    tuning: &Tuning,
) -> Result<ParsedKernel, String> {
    let is_it = |given: &&GivenKernels| Target { software: target.software, ..given.target.clone() } == *target;
    let given = options.kernels.iter().filter(|_| *tuning == Tuning::default()).rfind(is_it);
    let kernel = given.and_then(|given| given.kernels.get(position)?.clone());
    // The proofs in a file are not verified here.
    kernel.map(|kernel| ParsedKernel { kernel: EmittedKernel { unchecked: false, ..kernel } }).ok_or_else(absent)
}

/// No kernel: prebuilt kernels require tensors that fit in one binding each.
pub(super) fn emit_variant(_: &Step, _: &Target, _: &Tuning, _: &BindingChunks) -> Result<ParsedKernel, String> {
    Err(absent())
}

fn absent() -> String {
    "no kernel came with the model, and the feature `emit` is not built in".to_owned()
}

/// A kernel and its shader for a device.
pub(super) fn shader(ParsedKernel { kernel }: ParsedKernel) -> (EmittedKernel, Shader) {
    let source = wgpu::ShaderSource::Wgsl(Cow::Owned(kernel.wgsl.clone()));
    (kernel, Shader::Source(source))
}
