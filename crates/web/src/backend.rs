//! The kernels that run a model.

use crate::Failure;
use rewire::Kernel;
use rewire::rank::RankOptions;
use rewire::runtime::Report;
use serde_json::{Value, json};

/// Options for the backend `auto`, `wgpu` or `cpu`.
pub(crate) fn with_kernel(kernel: &str) -> Result<RankOptions, Failure> {
    let kernel: Kernel = kernel.parse().map_err(Failure::of_option)?;
    Ok(RankOptions { kernel, ..RankOptions::default() })
}

/// The device of a model, for JavaScript.
pub(crate) fn report_of(report: &Report) -> Value {
    json!({
        "kernel": report.kernel,
        "adapter": report.adapter,
        "gpuSteps": report.gpu_steps,
        "cpuSteps": report.cpu_steps,
        "threads": rewire::runtime::cpu::parallel::threads(),
        "deviceBytes": report.device_bytes,
        "hostBytes": report.host_bytes,
    })
}
