use super::shortest;
use crate::model::{KernelCache, KernelKey, ParsedKernel, WantedKernel};
use crate::{Gpu, GpuError};
use rewire_graph_rewrite::cost::HardwareModel;
use rewire_graph_rewrite::device::{BindingChunks, BindingSource, EmittedKernel, Tuning};
use std::time::Duration;
use web_time::Instant;
use wgpu::util::DeviceExt;

const COPY: &str = include_str!("../../shaders/copy.wgsl");
const MULTIPLY_ADD: &str = include_str!("../../shaders/multiply_add.wgsl");
#[cfg(feature = "emit")]
const MULTIPLY_ADD_MATRIX: &str = include_str!("../../shaders/multiply_add_matrix.wgsl");

/// Bytes that a workgroup copies from one tensor to the other.
const COPIED: u64 = 1024 * 16;
/// Bytes of the copied tensors: more than any cache, or less if the device is slow.
const LARGE: u64 = 512 << 20;
const MODEST: u64 = 32 << 20;
/// Copy bandwidth in bytes per second from which large tensors are used.
const FAST: f64 = 100e9;

/// Workgroups of the multiply-add kernel, fewer if it would take longer than this, and operations of each.
const GROUPS: u32 = 4096;
const FEW_GROUPS: u32 = 64;
const LONG: Duration = Duration::from_millis(40);
const OPERATIONS: f64 = 256.0 * 128.0 * 32.0 * 2.0;

/// Invocations per workgroup of the matrix kernel, and rounds of eight products for each subgroup.
#[cfg(feature = "emit")]
const MATRIX_THREADS: u32 = 128;
#[cfg(feature = "emit")]
const MATRIX_ROUNDS: f64 = 128.0;

pub(super) async fn measure(gpu: &Gpu, window: Duration) -> Result<HardwareModel, GpuError> {
    let modest = copy_seconds(gpu, window, MODEST).await?;
    let large = if 2.0 * MODEST as f64 / modest > FAST { LARGE } else { MODEST };
    let limit = gpu.target().binding_bytes.min(gpu.limits().max_buffer_size).min(large);
    let bytes = (limit / COPIED).clamp(1, u64::from(gpu.limits().max_compute_workgroups_per_dimension)) * COPIED;
    let copied = copy_seconds(gpu, window, bytes).await?;
    let multiply_add = OPERATIONS * groups_a_second(gpu, window, MULTIPLY_ADD).await?;
    let launch = copy_seconds(gpu, window, COPIED).await?;
    Ok(HardwareModel {
        bandwidth: 2.0 * bytes as f64 / copied,
        multiply_add,
        matrix: matrix_rate(gpu, window).await,
        launch,
    })
}

/// Operations per second of cooperative matrices with f16 operands; `None` if kernels use none.
#[cfg(feature = "emit")]
async fn matrix_rate(gpu: &Gpu, window: Duration) -> Option<f64> {
    let (size, subgroup) = gpu.target().cooperative()?;
    let measured = async {
        let variables = minijinja::context! { size, threads => MATRIX_THREADS };
        let mut environment = minijinja::Environment::empty();
        environment.add_function("range", minijinja::functions::range);
        let shader = environment.render_str(MULTIPLY_ADD_MATRIX, variables);
        let shader =
            shader.map_err(|error| GpuError::Rejected { what: "a measurement".into(), reason: error.to_string() });
        groups_a_second(gpu, window, &shader?).await
    };
    match measured.await {
        Ok(groups) => {
            let subgroups = f64::from(MATRIX_THREADS.div_ceil(subgroup));
            let product = 2.0 * f64::from(size).powi(3);
            Some(groups * subgroups * MATRIX_ROUNDS * 8.0 * product)
        }
        Err(error) => {
            tracing::warn!("{}: the rate of cooperative matrices is unknown: {error}", gpu.name());
            None
        }
    }
}

/// `None`, since this build has no emitter for the kernel.
#[cfg(not(feature = "emit"))]
async fn matrix_rate(_: &Gpu, _: Duration) -> Option<f64> {
    None
}

/// Workgroups of an arithmetic kernel per second.
async fn groups_a_second(gpu: &Gpu, window: Duration, wgsl: &str) -> Result<f64, GpuError> {
    let mut dispatch = Dispatch::new(gpu, wgsl, 16, FEW_GROUPS).await?;
    let mut seconds = dispatch.seconds(gpu, window)?;
    if seconds * f64::from(GROUPS / FEW_GROUPS) < LONG.as_secs_f64() {
        dispatch.groups = GROUPS;
        seconds = dispatch.seconds(gpu, window)?;
    }
    Ok(f64::from(dispatch.groups) / seconds)
}

async fn copy_seconds(gpu: &Gpu, window: Duration, bytes: u64) -> Result<f64, GpuError> {
    Dispatch::new(gpu, COPY, bytes, (bytes / COPIED) as u32).await?.seconds(gpu, window)
}

/// A kernel that reads one buffer and writes another.
struct Dispatch {
    pipeline: wgpu::ComputePipeline,
    bindings: wgpu::BindGroup,
    groups: u32,
}

impl Dispatch {
    async fn new(gpu: &Gpu, wgsl: &str, bytes: u64, groups: u32) -> Result<Self, GpuError> {
        let kernel = EmittedKernel {
            wgsl: wgsl.to_owned(),
            params: vec![],
            slots: vec![BindingSource::Operand(0), BindingSource::Output(0)],
            tile_lists: vec![],
            grid: vec![],
            unchecked: true,
            extension: None,
        };
        let rejected = |reason: String| GpuError::Rejected { what: "a measurement".into(), reason };
        let kernel = ParsedKernel::parse(kernel).map_err(|error| rejected(error.to_string()));
        let key = KernelKey { step: 0, windows: BindingChunks::default(), tuning: Tuning::default() };
        let wanted = WantedKernel { key, label: "a measurement".into(), kernel, lasting: false };
        let made = KernelCache::new(false).make(gpu, vec![wanted]).await.pop();
        let pipeline = made.unwrap_or_else(|| Err(rejected("it has no pipeline".into())))?.pipeline.clone();
        let work = || {
            let params = gpu.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents: &[0; 16],
                usage: wgpu::BufferUsages::UNIFORM,
            });
            let tensor = || gpu.buffer("measured", bytes, wgpu::BufferUsages::STORAGE);
            let buffers = [params, tensor(), tensor()];
            let entries: Vec<_> = (0..)
                .zip(&buffers)
                .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
                .collect();
            gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.layout,
                entries: &entries,
            })
        };
        let bindings = gpu.checked("measuring", work).await?;
        Ok(Self { pipeline: pipeline.pipeline, bindings, groups })
    }

    /// Seconds of one dispatch among many.
    fn seconds(&self, gpu: &Gpu, window: Duration) -> Result<f64, GpuError> {
        shortest(window, |count| {
            let begun = Instant::now();
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.bindings, &[]);
            (0..count).for_each(|_| pass.dispatch_workgroups(self.groups, 1, 1));
            drop(pass);
            gpu.submit([encoder.finish()]);
            gpu.wait()?;
            Ok(begun.elapsed())
        })
    }
}
