/// Opens a device.
pub(super) async fn request_device(
    adapter: &wgpu::Adapter,
    request: wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    adapter.request_device(&request).await
}

/// True where elements of matrices are computed in registers: never without the feature `spirv`, or without Vulkan.
pub(super) fn are_enabled(_: &wgpu::Device) -> bool {
    false
}
