use crate::{Gpu, GpuError};

/// A pipeline under creation; natively it is created at once.
pub(super) struct Creation(wgpu::ComputePipeline);

impl Creation {
    pub fn begin(create: impl Fn() -> wgpu::ComputePipeline) -> Self {
        Self(create())
    }

    pub async fn finish(self, _: &Gpu, _: &str) -> Result<wgpu::ComputePipeline, GpuError> {
        Ok(self.0)
    }
}
