use super::bindings::BindGroups;
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
    pub groups: BindGroups,
}

impl GpuStep {
    pub fn new(variant: Variant, kernel: EmittedKernel, pipeline: Pipeline, block: usize) -> Self {
        Self { kernels: vec![(variant, kernel, pipeline)], current: 0, block, groups: BindGroups::default() }
    }

    /// Takes the kernel of a variant; false if there is none yet.
    pub fn choose(&mut self, variant: &Variant) -> bool {
        let found = self.kernels.iter().position(|(own, ..)| own == variant);
        self.current = found.unwrap_or(self.current);
        found.is_some()
    }

    /// Takes a new kernel.
    pub fn add(&mut self, variant: Variant, kernel: EmittedKernel, pipeline: Pipeline) {
        self.kernels.push((variant, kernel, pipeline));
        self.current = self.kernels.len() - 1;
    }

    /// Lets go of the kernels of some tunings, unless there are no others.
    pub fn forget(&mut self, tunings: &[Tuning]) {
        let stays = |variant: &Variant| !tunings.contains(&variant.tuning);
        if self.kernels.iter().any(|(variant, ..)| stays(variant)) {
            self.kernels.retain(|(variant, ..)| stays(variant));
            (self.current, self.groups) = (0, BindGroups::default());
        }
    }

    /// The shaders of all its kernels.
    pub fn shaders(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|(_, kernel, _)| kernel.wgsl.as_str())
    }

    pub fn kernel(&self) -> &EmittedKernel {
        &self.kernels[self.current].1
    }

    #[cfg(test)]
    pub fn tuning(&self) -> Tuning {
        self.kernels[self.current].0.tuning
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.kernels[self.current].2
    }

    /// The position of the kernel that was taken last.
    pub fn current(&self) -> usize {
        self.current
    }
}
