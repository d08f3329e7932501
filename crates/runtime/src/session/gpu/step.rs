use crate::session::pipelines::Pipeline;
use rewire_graph_rewrite::emit::{EmittedKernel, Tuning, Windows};

/// What of a kernel follows from the sizes of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    pub windows: Windows,
    pub tuning: Tuning,
}

/// A step on the device: its kernel, and others for other sizes.
#[derive(Debug)]
pub(crate) struct GpuStep {
    kernels: Vec<(Variant, EmittedKernel, Pipeline)>,
    current: usize,
    /// Position of its parameter block.
    pub block: usize,
    bindings: Option<(u64, wgpu::BindGroup)>,
}

impl GpuStep {
    pub fn new(variant: Variant, kernel: EmittedKernel, pipeline: Pipeline, block: usize) -> Self {
        Self { kernels: vec![(variant, kernel, pipeline)], current: 0, block, bindings: None }
    }

    /// Takes the kernel of a variant; false if there is none yet.
    pub fn choose(&mut self, variant: &Variant) -> bool {
        let found = self.kernels.iter().position(|(own, ..)| own == variant);
        if let Some(position) = found.filter(|position| *position != self.current) {
            (self.current, self.bindings) = (position, None);
        }
        found.is_some()
    }

    /// Takes a new kernel.
    pub fn add(&mut self, variant: Variant, kernel: EmittedKernel, pipeline: Pipeline) {
        self.kernels.push((variant, kernel, pipeline));
        (self.current, self.bindings) = (self.kernels.len() - 1, None);
    }

    pub fn kernel(&self) -> &EmittedKernel {
        &self.kernels[self.current].1
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.kernels[self.current].2
    }

    /// The bind group of a generation of buffers.
    pub fn bindings(&self, generation: u64) -> Option<&wgpu::BindGroup> {
        self.bindings.as_ref().filter(|(own, _)| *own == generation).map(|(_, group)| group)
    }

    /// Lets go of the buffers of the latest bind group.
    pub fn unbind(&mut self) {
        self.bindings = None;
    }

    pub fn bind(&mut self, generation: u64, group: wgpu::BindGroup) {
        self.bindings = Some((generation, group));
    }
}
