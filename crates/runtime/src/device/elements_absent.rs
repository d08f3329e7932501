use super::MatrixReason;

/// Opens a device.
pub(super) async fn request_device(
    adapter: &wgpu::Adapter,
    request: wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    adapter.request_device(&request).await
}

/// What kernels may use of an extension of Vulkan.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixExtension {
    pub workgroup: u32,
    /// Multiprocessors, 0 where that is not known.
    pub multiprocessors: u32,
}

/// What a device may use: nothing without the feature `spirv`, or without Vulkan.
pub(super) fn offered(_: &wgpu::Adapter) -> Result<MatrixExtension, MatrixReason> {
    Err(MatrixReason::NotBuilt)
}

/// What a device may use that is open.
pub(super) fn enabled(adapter: &wgpu::Adapter, _: &wgpu::Device) -> Result<MatrixExtension, MatrixReason> {
    offered(adapter)
}
