//! Kernels from the emitter.

use super::load::ModelOptions;
use super::matrices::tested;
use super::pipelines::Shader;
use crate::Gpu;
use crate::timing::timed_async;
use rewire_emit::emit_with_windows;
pub(crate) use rewire_emit::{EMITTER, ParsedKernel, candidates, families, of_family, suited};
use rewire_graph::DType;
use rewire_graph_rewrite::device::{BindingChunks, EmittedKernel, Target, Tuning};
use rewire_graph_rewrite::plan::{Buffer, Plan, Step};
use std::borrow::Cow;

/// The device with the capabilities that kernels may use.
pub(super) async fn usable(gpu: Gpu, plan: &Plan, _: &ModelOptions) -> Gpu {
    // 8-bit rows that are inputs of a run have no step that converts them to f16.
    let comes = |buffer: &Buffer| buffer.dtype == DType::Rows8 && !buffer.source.is_resident();
    let gpu = match plan.buffers.iter().any(comes) {
        true => gpu.restricted(&Target { workgroup_matrices: 0, ..gpu.target().clone() }),
        false => gpu,
    };
    timed_async("testing cooperative matrices", tested(gpu, plan)).await
}

/// The kernel of a step, for tensors that fit in one binding each.
pub(super) fn emit_step(
    _: &ModelOptions,
    _: usize,
    step: &Step,
    target: &Target,
    tuning: &Tuning,
) -> Result<ParsedKernel, String> {
    emit_variant(step, target, tuning, &BindingChunks::of_constants(&step.computation, target))
}

/// The kernel of a step with tensors bound in chunks.
pub(super) fn emit_variant(
    step: &Step,
    target: &Target,
    tuning: &Tuning,
    windows: &BindingChunks,
) -> Result<ParsedKernel, String> {
    emit_with_windows(&step.computation, target, tuning, windows).map_err(|error| error.to_string())
}

/// A kernel and its shader for a device. Browsers parse the shader themselves, and reject some of naga's output.
pub(super) fn shader(parsed: ParsedKernel) -> (EmittedKernel, Shader) {
    #[cfg(feature = "spirv")]
    if parsed.kernel.extension.is_some() {
        return (parsed.kernel.clone(), Shader::SpirV(parsed));
    }
    let ParsedKernel { kernel, module } = parsed;
    let source = match cfg!(target_arch = "wasm32") {
        true => wgpu::ShaderSource::Wgsl(Cow::Owned(kernel.wgsl.clone())),
        false => wgpu::ShaderSource::Naga(Cow::Owned(module)),
    };
    (kernel, Shader::Source(source))
}
