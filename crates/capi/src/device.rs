//! What an app's own device is opened with.

use rewire::runtime::wgpu;

/// What kernels and their cache use of a device where there is it.
pub(crate) const FEATURES: wgpu::Features = wgpu::Features::SHADER_F16
    .union(wgpu::Features::SHADER_INT64)
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::SUBGROUP_BARRIER)
    .union(wgpu::Features::PIPELINE_CACHE);

/// With what of an adapter kernels use.
pub(crate) fn request(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    wgpu::DeviceDescriptor {
        label: Some("rewire"),
        required_features: adapter.features() & FEATURES,
        required_limits: adapter.limits(),
        ..Default::default()
    }
}
