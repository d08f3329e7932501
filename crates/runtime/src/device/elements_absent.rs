use super::MatrixReason;

/// Opens a device.
pub(super) async fn request_device(
    adapter: &wgpu::Adapter,
    request: wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    adapter.request_device(&request).await
}

/// The parts of a Vulkan extension that kernels may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixExtension {
    pub workgroup: u32,
    /// Whether shaders have 8-bit integers.
    pub integers: bool,
    /// Multiprocessors; 0 if unknown.
    pub multiprocessors: u32,
}

/// The parts available on an adapter: none without the feature `spirv`, or without Vulkan.
pub(super) fn offered(_: &wgpu::Adapter) -> Result<MatrixExtension, MatrixReason> {
    Err(MatrixReason::NotBuilt)
}

/// The parts available on an open device.
pub(super) fn enabled(adapter: &wgpu::Adapter, _: &wgpu::Device) -> Result<MatrixExtension, MatrixReason> {
    offered(adapter)
}
