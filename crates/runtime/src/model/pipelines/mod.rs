//! Compiled kernels, in memory and on disk.

#[cfg_attr(target_arch = "wasm32", path = "browser.rs")]
mod creation;
#[cfg_attr(not(feature = "files"), path = "absent.rs")]
mod store;

pub use store::PipelineStore;

use super::emitter::{ParsedKernel, shader};
use crate::parallel::later;
#[cfg(not(target_arch = "wasm32"))]
use crate::parallel::map;
use crate::timing::timed;
use crate::{Gpu, GpuError};
use creation::Creation;
use rewire_graph_rewrite::device::{BindingChunks, BindingSource, EmittedKernel, Tuning};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use store::Stored;

/// The key of a kernel of a model on its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelKey {
    pub step: usize,
    pub windows: BindingChunks,
    pub tuning: Tuning,
}

/// A compiled kernel of a step.
#[derive(Debug)]
pub(crate) struct StepKernel {
    pub kernel: EmittedKernel,
    pub pipeline: Pipeline,
}

/// A compiled shader.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// A kernel to compile, or why it cannot be emitted.
#[derive(Debug)]
pub(crate) struct WantedKernel<E> {
    pub key: KernelKey,
    /// Its purpose, for error messages.
    pub label: String,
    pub kernel: Result<ParsedKernel, E>,
    /// True if later processes will need it too.
    pub lasting: bool,
}

/// A compiled kernel, or the error.
pub(crate) type Made<E> = Result<Arc<StepKernel>, E>;

/// The compiled kernels of a model on its device. Kernels of the same shader share a pipeline.
#[derive(Debug)]
pub(crate) struct KernelCache {
    known: RwLock<HashMap<KernelKey, Arc<StepKernel>>>,
    layouts: Mutex<HashMap<Vec<bool>, wgpu::BindGroupLayout>>,
    checked: bool,
    stored: Option<Arc<Stored>>,
}

/// The form in which a device accepts a kernel.
pub(super) enum Shader {
    /// WGSL, or naga's output.
    Source(wgpu::ShaderSource<'static>),
    /// SPIR-V, written at compilation.
    #[cfg(feature = "spirv")]
    SpirV(ParsedKernel),
}

/// The origin of a pipeline.
enum Origin {
    Known(Pipeline),
    Job(usize),
}

/// A pipeline to create.
struct Job {
    wgsl: String,
    written: Vec<bool>,
    what: String,
    label: String,
    shader: Shader,
    layout: wgpu::BindGroupLayout,
    checked: bool,
    lasting: bool,
}

impl KernelCache {
    /// With `checked`, shaders check every index and bound every loop.
    pub fn new(checked: bool) -> Self {
        Self { known: RwLock::default(), layouts: Mutex::default(), checked, stored: None }
    }

    /// Loads the kernels that earlier processes compiled for the device and a plan, identified by its shaders.
    pub async fn open(&mut self, store: &PipelineStore, gpu: &Gpu, shaders: impl Iterator<Item = &str>) {
        self.stored = store.open(gpu, shaders).await.map(Arc::new);
    }

    /// Stores compiled kernels for later processes, on a background thread if available.
    pub fn store(&self) {
        if let Some(stored) = self.stored.as_ref().filter(|stored| stored.has_grown()) {
            let stored = stored.clone();
            later(move || stored.keep());
        }
    }

    /// The kernel with a key, if compiled.
    pub fn find(&self, key: &KernelKey) -> Option<Arc<StepKernel>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// The key of a kernel.
    #[cfg(test)]
    pub fn key_of(&self, kernel: &Arc<StepKernel>) -> Option<KernelKey> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(_, known)| Arc::ptr_eq(known, kernel)).map(|(key, _)| key.clone())
    }

    /// Drops kernels, and pipelines that no other kernel uses.
    pub fn forget(&self, unused: impl Fn(&KernelKey) -> bool) {
        self.write().retain(|key, _| !unused(key));
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<KernelKey, Arc<StepKernel>>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles kernels in parallel, unless another caller compiled them meanwhile.
    pub async fn make<E: From<GpuError>>(&self, gpu: &Gpu, kernels: Vec<WantedKernel<E>>) -> Vec<Made<E>> {
        let mut asked = Vec::with_capacity(kernels.len());
        let mut jobs = Vec::new();
        for WantedKernel { key, label, kernel, lasting } in kernels {
            let origin = match kernel {
                Ok(parsed) => self.origin(gpu, parsed, (label, lasting), &mut jobs).await.map_err(E::from),
                Err(reason) => Err(reason),
            };
            asked.push((key, origin));
        }
        let made = self.compile_all(gpu, jobs).await;
        let mut known = self.write();
        let keep = |(key, found): (KernelKey, Result<(EmittedKernel, Origin), E>)| {
            let (kernel, origin) = found?;
            let pipeline = match origin {
                Origin::Known(pipeline) => pipeline,
                Origin::Job(number) => made[number].clone()?,
            };
            Ok(known.entry(key).or_insert_with(|| Arc::new(StepKernel { kernel, pipeline })).clone())
        };
        asked.into_iter().map(keep).collect()
    }

    /// The pipeline of another kernel with the same shader, or a job that creates one.
    async fn origin(
        &self,
        gpu: &Gpu,
        parsed: ParsedKernel,
        (label, lasting): (String, bool),
        jobs: &mut Vec<Job>,
    ) -> Result<(EmittedKernel, Origin), GpuError> {
        let (kernel, shader) = shader(parsed);
        let written = written(&kernel);
        if let Some(pipeline) = self.pipeline_of(&kernel, &written) {
            return Ok((kernel, Origin::Known(pipeline)));
        }
        if let Some(number) = jobs.iter().position(|job| job.wgsl == kernel.wgsl && job.written == written) {
            return Ok((kernel, Origin::Job(number)));
        }
        let what = format!("the kernel of {label}");
        let known = lock(&self.layouts).get(&written).cloned();
        let layout = match known {
            Some(layout) => layout,
            None => gpu.checked(&what, || layout(gpu, &written)).await?,
        };
        lock(&self.layouts).insert(written.clone(), layout.clone());
        let (wgsl, checked) = (kernel.wgsl.clone(), self.checked || !kernel.unchecked);
        jobs.push(Job { wgsl, written, what, label, shader, layout, checked, lasting });
        Ok((kernel, Origin::Job(jobs.len() - 1)))
    }

    fn pipeline_of(&self, kernel: &EmittedKernel, slots: &[bool]) -> Option<Pipeline> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let alike = known.values().find(|known| known.kernel.wgsl == kernel.wgsl && written(&known.kernel) == slots);
        alike.map(|known| known.pipeline.clone())
    }

    /// Compiles on all threads; in a browser on this one, because WebGPU objects cannot leave their thread.
    async fn compile_all(&self, gpu: &Gpu, jobs: Vec<Job>) -> Vec<Result<Pipeline, GpuError>> {
        let cache = self.stored.as_ref().map(|stored| stored.cache());
        let compile_one = |Job { what, label, shader, layout, checked, lasting, .. }| {
            let cache = cache.filter(|_| lasting);
            let own = layout.clone();
            let compile = move || compile(gpu, shader, (&own, cache), &label, checked);
            let title = format!("compiling {what}");
            let compiled = gpu.watched(move || timed(title, compile));
            (what, layout, lasting, compiled)
        };
        #[cfg(not(target_arch = "wasm32"))]
        let compiled = map(jobs, compile_one);
        #[cfg(target_arch = "wasm32")]
        let compiled: Vec<_> = jobs.into_iter().map(compile_one).collect();
        let mut made = Vec::with_capacity(compiled.len());
        for (what, layout, lasting, compiled) in compiled {
            let pipeline = match gpu.outcome(&what, compiled).await.and_then(|creation| creation) {
                Ok(creation) => creation.finish(gpu, &what).await,
                Err(error) => Err(error),
            };
            let pipeline = pipeline.map(|pipeline| Pipeline { pipeline, layout });
            if pipeline.is_ok() {
                self.stored.iter().filter(|_| lasting).for_each(|stored| stored.grow());
            }
            made.push(pipeline);
        }
        made
    }
}

impl Drop for KernelCache {
    fn drop(&mut self) {
        // Another thread may not have started yet.
        self.stored.iter().for_each(|stored| stored.keep());
    }
}

fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By slot, true if the kernel writes it.
fn written(kernel: &EmittedKernel) -> Vec<bool> {
    kernel.slots.iter().map(|slot| matches!(slot, BindingSource::Output(_))).collect()
}

fn layout(gpu: &Gpu, written: &[bool]) -> wgpu::BindGroupLayout {
    let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    };
    let storage = written
        .iter()
        .enumerate()
        .map(|(n, written)| entry(n as u32 + 1, wgpu::BufferBindingType::Storage { read_only: !written }));
    let entries: Vec<_> = [entry(0, wgpu::BufferBindingType::Uniform)].into_iter().chain(storage).collect();
    gpu.device()
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some("a kernel"), entries: &entries })
}

fn compile(
    gpu: &Gpu,
    shader: Shader,
    (layout, cache): (&wgpu::BindGroupLayout, Option<&wgpu::PipelineCache>),
    label: &str,
    checked: bool,
) -> Result<Creation, GpuError> {
    let module = match shader {
        Shader::Source(source) => {
            from_source(gpu, wgpu::ShaderModuleDescriptor { label: Some(label), source }, checked)
        }
        #[cfg(feature = "spirv")]
        Shader::SpirV(kernel) => from_spirv(gpu, &kernel, label, checked)?,
    };
    let pipeline_layout = gpu.device().create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(label),
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    let (device, label, cache) = (gpu.device().clone(), label.to_owned(), cache.cloned());
    Ok(Creation::begin(move || {
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&label),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: cache.as_ref(),
        })
    }))
}

fn from_source(gpu: &Gpu, source: wgpu::ShaderModuleDescriptor<'_>, checked: bool) -> wgpu::ShaderModule {
    if checked {
        gpu.device().create_shader_module(source)
    } else {
        // SAFETY: loading a plan proves that its kernels load and store within their tensors, or clamps indices; the
        // shape program checks all assumptions of the proofs before each run. Templates index workgroup memory by
        // thread indices and bound their loops by construction; functions divide integers only by values other than 0
        // and -1. User-defined functions in shaders without checks do none of this. The tests run the same kernels with
        // checks.
        unsafe { gpu.device().create_shader_module_trusted(source, wgpu::ShaderRuntimeChecks::unchecked()) }
    }
}

/// A SPIR-V module, which wgpu passes to the driver unchanged.
#[cfg(feature = "spirv")]
fn from_spirv(gpu: &Gpu, parsed: &ParsedKernel, label: &str, checked: bool) -> Result<wgpu::ShaderModule, GpuError> {
    let rejected = |reason: String| GpuError::Rejected { what: format!("the kernel of {label}"), reason };
    let words = parsed.spirv(gpu.target(), checked).map_err(|error| rejected(error.to_string()))?;
    let entry = parsed.module.entry_points.first().ok_or_else(|| rejected("it has no entry point".to_owned()))?;
    let [x, y, z] = entry.workgroup_size;
    let points = [wgpu::PassthroughShaderEntryPoint { name: entry.name.as_str().into(), workgroup_size: (x, y, z) }];
    let source = wgpu::ShaderModuleDescriptorPassthrough {
        label: Some(label),
        entry_points: (&points[..]).into(),
        spirv: Some(words.into()),
        ..Default::default()
    };
    // SAFETY: naga wrote the SPIR-V for this device from a validated shader; instructions that replace calls belong to
    // an extension with which the device was opened, and the self-test has used it. Indices satisfy the same conditions
    // as in shaders without checks.
    Ok(unsafe { gpu.device().create_shader_module_passthrough(source) })
}
