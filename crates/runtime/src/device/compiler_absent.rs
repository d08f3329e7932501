use super::compiled::CompiledKernel;
use super::matrices::MatrixTier;
use crate::GpuError;
use rewire_emit::ParsedKernel;
use rewire_graph_rewrite::device::Target;
use std::convert::Infallible;

/// A device that compiles kernels; unavailable without the feature `spirv`, or without Vulkan.
pub struct KernelCompiler(Infallible);

impl KernelCompiler {
    /// Fails.
    ///
    /// # Errors
    /// [`GpuError::NoAdapter`].
    pub fn open(filter: Option<&str>, _: Option<MatrixTier>) -> Result<Self, GpuError> {
        let missing = "kernels are compiled by drivers of Vulkan, for which the library was not built".to_owned();
        Err(GpuError::NoAdapter { filter: filter.map(str::to_owned), missing })
    }

    /// The name of the adapter.
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// The capabilities for which kernels are emitted.
    pub fn target(&self) -> &Target {
        match self.0 {}
    }

    /// Compiles a kernel.
    ///
    /// # Errors
    /// Never.
    pub fn compile(&self, _: &ParsedKernel, _: bool) -> Result<CompiledKernel, GpuError> {
        match self.0 {}
    }
}
