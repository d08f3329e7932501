//! Compiled kernels, in this process and on disk.

mod store;

pub use store::PipelineStore;

use crate::{Gpu, GpuError};
use rewire_graph_rewrite::emit::{EmittedKernel, Slot};
use std::collections::HashMap;
use store::Stored;

/// A compiled kernel.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// Compiled kernels, one for each distinct shader.
#[derive(Debug)]
pub(crate) struct Pipelines {
    known: HashMap<(String, Vec<bool>), Pipeline>,
    layouts: HashMap<Vec<bool>, wgpu::BindGroupLayout>,
    checked: bool,
    stored: Option<Stored>,
    /// Kernels were compiled since the file was looked at.
    compiled: bool,
}

impl Pipelines {
    /// `checked`: shaders check every index and bound every loop.
    pub fn new(checked: bool) -> Self {
        Self { known: HashMap::new(), layouts: HashMap::new(), checked, stored: None, compiled: false }
    }

    /// Takes what earlier processes compiled for the device.
    pub async fn open(&mut self, store: &PipelineStore, gpu: &Gpu) {
        self.stored = store.open(gpu).await;
    }

    /// Keeps what was compiled for later processes.
    pub fn store(&mut self) {
        if let (true, Some(stored)) = (std::mem::take(&mut self.compiled), &mut self.stored) {
            stored.keep();
        }
    }

    /// Lets go of the pipelines of shaders that are not used.
    pub fn keep(&mut self, used: impl Fn(&str) -> bool) {
        self.known.retain(|(wgsl, _), _| used(wgsl));
    }

    /// The pipeline of a kernel, made at the first call.
    pub async fn get(&mut self, gpu: &Gpu, kernel: &EmittedKernel, label: &str) -> Result<Pipeline, GpuError> {
        let written: Vec<bool> = kernel.slots.iter().map(|slot| matches!(slot, Slot::Output(_))).collect();
        let key = (kernel.wgsl.clone(), written);
        if let Some(pipeline) = self.known.get(&key) {
            return Ok(pipeline.clone());
        }
        let what = format!("the kernel of {label}");
        let layout = match self.layouts.get(&key.1) {
            Some(layout) => layout.clone(),
            None => gpu.checked(&what, || layout(gpu, &key.1)).await?,
        };
        self.layouts.insert(key.1.clone(), layout.clone());
        let checked = self.checked || !kernel.trusted;
        let cache = self.stored.as_ref().map(Stored::cache);
        let pipeline = gpu.checked(&what, || compile(gpu, &kernel.wgsl, (&layout, cache), label, checked)).await?;
        self.compiled = true;
        let pipeline = Pipeline { pipeline, layout };
        self.known.insert(key, pipeline.clone());
        Ok(pipeline)
    }
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
    gpu.device().create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

fn compile(
    gpu: &Gpu,
    wgsl: &str,
    (layout, cache): (&wgpu::BindGroupLayout, Option<&wgpu::PipelineCache>),
    label: &str,
    checked: bool,
) -> wgpu::ComputePipeline {
    let source = || wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(wgsl.into()) };
    let module = if checked {
        gpu.device().create_shader_module(source())
    } else {
        // SAFETY: emitted kernels index within their operands and end their loops by construction, and every
        // operand's size is checked before a run. The tests run the same kernels with checks.
        unsafe { gpu.device().create_shader_module_trusted(source(), wgpu::ShaderRuntimeChecks::unchecked()) }
    };
    let pipeline_layout = gpu.device().create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    gpu.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache,
    })
}
