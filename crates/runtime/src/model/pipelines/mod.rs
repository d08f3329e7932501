//! Compiled kernels, in this process and on disk.

#[cfg_attr(target_arch = "wasm32", path = "browser.rs")]
mod creation;
#[cfg_attr(not(feature = "files"), path = "absent.rs")]
mod store;

pub use store::PipelineStore;

use super::emitter::{ParsedKernel, shader};
use crate::parallel::{later, map};
use crate::timing::timed;
use crate::{Gpu, GpuError};
use creation::Creation;
use rewire_graph_rewrite::device::{EmittedKernel, Slot};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Stored;

/// A compiled kernel.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// A kernel to compile, or why there is none.
#[derive(Debug)]
pub(crate) struct WantedPipeline<E> {
    /// What it is for, in errors.
    pub label: String,
    pub kernel: Result<ParsedKernel, E>,
    /// Later processes will want it as well.
    pub lasting: bool,
}

/// A kernel that is compiled, or why it is not.
pub(crate) type Made<E> = Result<(EmittedKernel, Pipeline), E>;

/// Compiled kernels, one for each distinct shader.
#[derive(Debug)]
pub(crate) struct Pipelines {
    known: Mutex<HashMap<Key, Pipeline>>,
    layouts: Mutex<HashMap<Vec<bool>, wgpu::BindGroupLayout>>,
    checked: bool,
    stored: Option<Arc<Stored>>,
}

/// What a device takes a kernel as.
pub(super) enum Shader {
    /// WGSL, or what naga made of it.
    Source(wgpu::ShaderSource<'static>),
    /// SPIR-V, which is written when it is compiled.
    #[cfg(feature = "spirv")]
    SpirV(ParsedKernel),
}

/// A shader, and which of its slots are written.
type Key = (String, Vec<bool>);

/// Where a pipeline comes from.
enum Origin {
    Known(Pipeline),
    Job(usize),
}

/// A pipeline to make.
struct Job {
    key: Key,
    what: String,
    label: String,
    shader: Shader,
    layout: wgpu::BindGroupLayout,
    checked: bool,
    lasting: bool,
}

impl Pipelines {
    /// `checked`: shaders check every index and bound every loop.
    pub fn new(checked: bool) -> Self {
        Self { known: Mutex::default(), layouts: Mutex::default(), checked, stored: None }
    }

    /// Takes what earlier processes compiled for the device and a plan, which its shaders stand for.
    pub async fn open(&mut self, store: &PipelineStore, gpu: &Gpu, shaders: impl Iterator<Item = &str>) {
        self.stored = store.open(gpu, shaders).await.map(Arc::new);
    }

    /// Keeps what was compiled for later processes, on another thread where there are some: nobody waits for it.
    pub fn store(&self) {
        if let Some(stored) = self.stored.as_ref().filter(|stored| stored.has_grown()) {
            let stored = stored.clone();
            later(move || stored.keep());
        }
    }

    /// Lets go of the pipelines of shaders that are not used.
    pub fn keep(&self, used: impl Fn(&str) -> bool) {
        lock(&self.known).retain(|(wgsl, _), _| used(wgsl));
    }

    /// The pipelines of kernels. Those that are new are made now, side by side.
    pub async fn get<E: From<GpuError>>(&self, gpu: &Gpu, kernels: Vec<WantedPipeline<E>>) -> Vec<Made<E>> {
        let mut asked = Vec::with_capacity(kernels.len());
        let mut jobs = Vec::new();
        for WantedPipeline { label, kernel, lasting } in kernels {
            let found = match kernel {
                Ok(parsed) => self.find(gpu, parsed, (label, lasting), &mut jobs).await.map_err(E::from),
                Err(reason) => Err(reason),
            };
            asked.push(found);
        }
        let made = self.make(gpu, jobs).await;
        let pipeline = |origin| match origin {
            Origin::Known(pipeline) => Ok(pipeline),
            Origin::Job(number) => made[number].clone(),
        };
        asked.into_iter().map(|found| found.and_then(|(kernel, origin)| Ok((kernel, pipeline(origin)?)))).collect()
    }

    /// The pipeline of a kernel, or a job that makes it.
    async fn find(
        &self,
        gpu: &Gpu,
        parsed: ParsedKernel,
        (label, lasting): (String, bool),
        jobs: &mut Vec<Job>,
    ) -> Result<(EmittedKernel, Origin), GpuError> {
        let (kernel, shader) = shader(parsed);
        let written: Vec<bool> = kernel.slots.iter().map(|slot| matches!(slot, Slot::Output(_))).collect();
        let key = (kernel.wgsl.clone(), written);
        if let Some(pipeline) = lock(&self.known).get(&key).cloned() {
            return Ok((kernel, Origin::Known(pipeline)));
        }
        if let Some(number) = jobs.iter().position(|job| job.key == key) {
            return Ok((kernel, Origin::Job(number)));
        }
        let what = format!("the kernel of {label}");
        let known = lock(&self.layouts).get(&key.1).cloned();
        let layout = match known {
            Some(layout) => layout,
            None => gpu.checked(&what, || layout(gpu, &key.1)).await?,
        };
        lock(&self.layouts).insert(key.1.clone(), layout.clone());
        let checked = self.checked || !kernel.unchecked;
        jobs.push(Job { key, what, label, shader, layout, checked, lasting });
        Ok((kernel, Origin::Job(jobs.len() - 1)))
    }

    /// Compiles on all threads.
    async fn make(&self, gpu: &Gpu, jobs: Vec<Job>) -> Vec<Result<Pipeline, GpuError>> {
        let cache = self.stored.as_ref().map(|stored| stored.cache());
        let compiled = map(jobs, |Job { key, what, label, shader, layout, checked, lasting }| {
            let cache = cache.filter(|_| lasting);
            let own = layout.clone();
            let compile = move || compile(gpu, shader, (&own, cache), &label, checked);
            let title = format!("compiling {what}");
            let compiled = gpu.watched(move || timed(title, compile));
            (key, what, layout, lasting, compiled)
        });
        let mut made = Vec::with_capacity(compiled.len());
        for (key, what, layout, lasting, compiled) in compiled {
            let pipeline = match gpu.outcome(&what, compiled).await.and_then(|creation| creation) {
                Ok(creation) => creation.finish(gpu, &what).await,
                Err(error) => Err(error),
            };
            let pipeline = pipeline.map(|pipeline| Pipeline { pipeline, layout });
            if let Ok(pipeline) = &pipeline {
                lock(&self.known).insert(key, pipeline.clone());
                self.stored.iter().filter(|_| lasting).for_each(|stored| stored.grow());
            }
            made.push(pipeline);
        }
        made
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        // Another thread may not have begun.
        self.stored.iter().for_each(|stored| stored.keep());
    }
}

fn lock<T>(known: &Mutex<T>) -> MutexGuard<'_, T> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
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
        // SAFETY: loading a plan proves that its kernels load and store within their tensors, or clamps them to these;
        // what the proofs assume of a run, the shape program checks before it. Templates index workgroup memory by
        // numbers of threads and end their loops by construction; functions divide integers by what is neither 0 nor -1.
        // Functions of a user's own do none of this in shaders without checks. The tests run the same kernels with checks.
        unsafe { gpu.device().create_shader_module_trusted(source, wgpu::ShaderRuntimeChecks::unchecked()) }
    }
}

/// A module of SPIR-V, which wgpu hands to the driver as it is.
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
    // SAFETY: naga wrote the words of a shader that it holds for valid, for this device; what replaces calls in them is of an extension that the
    // device was opened with, and the self-test has multiplied by it. Of indices the same is true as of shaders without checks.
    Ok(unsafe { gpu.device().create_shader_module_passthrough(source) })
}
