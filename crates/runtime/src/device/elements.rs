//! `VK_NV_cooperative_matrix2`, by which elements of cooperative matrices are computed in registers.

use ash::vk;
use std::ffi::{CStr, c_void};
use std::ptr;
use wgpu::hal::api::Vulkan;

const EXTENSION: &CStr = c"VK_NV_cooperative_matrix2";

/// `VkPhysicalDeviceCooperativeMatrix2FeaturesNV`, which ash 0.38 has not.
#[repr(C)]
struct Features {
    s_type: vk::StructureType,
    p_next: *mut c_void,
    workgroup_scope: vk::Bool32,
    flexible_dimensions: vk::Bool32,
    reductions: vk::Bool32,
    conversions: vk::Bool32,
    per_element_operations: vk::Bool32,
    tensor_addressing: vk::Bool32,
    block_loads: vk::Bool32,
}

impl Features {
    fn none() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(1_000_593_000),
            p_next: ptr::null_mut(),
            workgroup_scope: vk::FALSE,
            flexible_dimensions: vk::FALSE,
            reductions: vk::FALSE,
            conversions: vk::FALSE,
            per_element_operations: vk::FALSE,
            tensor_addressing: vk::FALSE,
            block_loads: vk::FALSE,
        }
    }

    /// What an adapter has.
    fn of(adapter: &wgpu::hal::vulkan::Adapter) -> Self {
        let mut features = Self::none();
        if !adapter.physical_device_capabilities().supports_extension(EXTENSION) {
            return features;
        }
        let mut all = vk::PhysicalDeviceFeatures2 { p_next: ptr::from_mut(&mut features).cast(), ..Default::default() };
        let instance = adapter.shared_instance().raw_instance();
        // SAFETY: the physical device is that of this instance, whose device is of Vulkan 1.1 or later where it has cooperative matrices,
        // and the chain has one structure, whose type its first member tells.
        unsafe { instance.get_physical_device_features2(adapter.raw_physical_device(), &mut all) };
        features
    }

    /// What kernels use of it, if it has all of that.
    fn used(&self) -> Option<Self> {
        let has_all = [self.conversions, self.per_element_operations].into_iter().all(|has| has == vk::TRUE);
        has_all.then(|| Self { conversions: vk::TRUE, per_element_operations: vk::TRUE, ..Self::none() })
    }
}

/// Opens a device, with the extension where the adapter has what kernels use of it.
pub(super) async fn request_device(
    adapter: &wgpu::Adapter,
    mut request: wgpu::DeviceDescriptor<'_>,
) -> Result<(wgpu::Device, wgpu::Queue), wgpu::RequestDeviceError> {
    let more = wgpu::Features::PASSTHROUGH_SHADERS;
    if request.required_features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        && adapter.features().contains(more)
        && let Some(opened) = open(adapter, request.required_features | more, &request)
    {
        request.required_features |= more;
        // SAFETY: the device was opened from this adapter with these features.
        return unsafe { adapter.create_device_from_hal(opened, &request) };
    }
    adapter.request_device(&request).await
}

/// The device with the extension; `None` where it cannot be had, and a plain one may.
fn open(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
    request: &wgpu::DeviceDescriptor<'_>,
) -> Option<wgpu::hal::OpenDevice<Vulkan>> {
    // SAFETY: the adapter is not destroyed here.
    let adapter = unsafe { adapter.as_hal::<Vulkan>() }?;
    let mut used = Features::of(&adapter).used()?;
    let callback: Box<wgpu::hal::vulkan::CreateDeviceCallback<'_>> = Box::new(|args| {
        args.extensions.push(EXTENSION);
        used.p_next = args.create_info.p_next.cast_mut();
        args.create_info.p_next = ptr::from_ref(&used).cast();
    });
    // SAFETY: the callback adds an extension and features that the adapter has, in a structure that outlives the call.
    let opened = unsafe {
        adapter.open_with_callback(features, &request.required_limits, &request.memory_hints, Some(callback))
    };
    opened.inspect_err(|error| tracing::warn!("matrix elements stay in memory: {error}")).ok()
}

/// True if a device was opened with the extension, and takes SPIR-V.
pub(super) fn are_enabled(device: &wgpu::Device) -> bool {
    // SAFETY: the device is not destroyed here.
    let vulkan = unsafe { device.as_hal::<Vulkan>() };
    device.features().contains(wgpu::Features::PASSTHROUGH_SHADERS)
        && vulkan.is_some_and(|device| device.enabled_device_extensions().contains(&EXTENSION))
}
