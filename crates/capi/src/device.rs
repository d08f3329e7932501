//! The requirements on an app's own device.

use rewire::runtime::wgpu;

/// Optional features that kernels and their cache use.
pub(crate) const FEATURES: wgpu::Features = wgpu::Features::SHADER_F16
    .union(wgpu::Features::SHADER_INT64)
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::SUBGROUP_BARRIER)
    .union(wgpu::Features::PIPELINE_CACHE);

/// The features and limits of an adapter that kernels use.
pub(crate) fn request(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    wgpu::DeviceDescriptor {
        label: Some("rewire"),
        required_features: adapter.features() & FEATURES,
        required_limits: adapter.limits(),
        ..Default::default()
    }
}
