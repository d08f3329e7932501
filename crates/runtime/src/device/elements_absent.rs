/// Opens a device.
pub(super) async fn request_device(
    adapter: &wgpu::Adapter,
    request: wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    adapter.request_device(&request).await
}

/// What kernels may use of an extension of Vulkan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MatrixExtension {
    pub elements: bool,
    pub workgroup: u32,
}

/// What a device was opened with: nothing without the feature `spirv`, or without Vulkan.
pub(super) fn enabled(_: &wgpu::Adapter, _: &wgpu::Device) -> Option<MatrixExtension> {
    None
}
