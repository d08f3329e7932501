//! `VK_NV_cooperative_matrix2`: operations on elements of cooperative matrices in registers.

use super::MatrixReason;
use ash::vk;
use std::ffi::{CStr, c_void};
use std::ptr;
use wgpu::hal::api::Vulkan;

const EXTENSION: &CStr = c"VK_NV_cooperative_matrix2";

/// `VkPhysicalDeviceCooperativeMatrix2FeaturesNV`, which ash 0.38 lacks.
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

    /// The features of an adapter.
    fn of(adapter: &wgpu::hal::vulkan::Adapter) -> Self {
        let mut features = Self::none();
        if !adapter.physical_device_capabilities().supports_extension(EXTENSION) {
            return features;
        }
        let mut all = vk::PhysicalDeviceFeatures2 { p_next: ptr::from_mut(&mut features).cast(), ..Default::default() };
        let instance = adapter.shared_instance().raw_instance();
        // SAFETY: the physical device belongs to this instance. A device with cooperative matrices has Vulkan 1.1 or
        // later. The chain has one structure, with its type in the first member.
        unsafe { instance.get_physical_device_features2(adapter.raw_physical_device(), &mut all) };
        features
    }

    /// The features that kernels use, if all required ones exist.
    fn used(&self) -> Option<Self> {
        let used = Self { conversions: vk::TRUE, per_element_operations: vk::TRUE, ..Self::none() };
        let has_least = [self.conversions, self.per_element_operations].into_iter().all(|has| has == vk::TRUE);
        let of_workgroups = [self.workgroup_scope, self.flexible_dimensions, self.tensor_addressing];
        let shares = of_workgroups.into_iter().all(|has| has == vk::TRUE);
        let [workgroup_scope, flexible_dimensions, tensor_addressing] = [if shares { vk::TRUE } else { vk::FALSE }; 3];
        has_least.then_some(Self { workgroup_scope, flexible_dimensions, tensor_addressing, ..used })
    }
}

/// `VkPhysicalDeviceCooperativeMatrix2PropertiesNV`.
#[repr(C)]
struct Properties {
    s_type: vk::StructureType,
    p_next: *mut c_void,
    workgroup_invocations: u32,
    flexible_dimensions: u32,
    reserved_bytes: u32,
}

/// The parts of the extension that kernels may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixExtension {
    /// Invocations of the largest workgroup that may share matrices; 0 if unsupported.
    pub workgroup: u32,
    /// Whether shaders have 8-bit integers.
    pub integers: bool,
    /// Multiprocessors; 0 if unknown.
    pub multiprocessors: u32,
}

/// Opens a device, with the extension if the adapter has all features that kernels use.
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

/// The device with the extension; `None` if it is unavailable and a plain device is acceptable.
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
    // SAFETY: the callback adds an extension and features that the adapter supports, in a structure that outlives the
    // call.
    let opened = unsafe {
        adapter.open_with_callback(features, &request.required_limits, &request.memory_hints, Some(callback))
    };
    opened.inspect_err(|error| tracing::warn!("matrix elements stay in memory: {error}")).ok()
}

/// The parts of the extension available on a device that [`request_device`] opens.
pub(super) fn offered(adapter: &wgpu::Adapter) -> Result<MatrixExtension, MatrixReason> {
    // SAFETY: the adapter is not destroyed here.
    let hal = unsafe { adapter.as_hal::<Vulkan>() }.ok_or(MatrixReason::NoExtension)?;
    let takes_words = adapter.features().contains(wgpu::Features::PASSTHROUGH_SHADERS);
    let used = Features::of(&hal).used().filter(|_| takes_words).ok_or(MatrixReason::NoExtension)?;
    match used.workgroup_scope {
        vk::TRUE => Ok(of_workgroups(&hal)),
        _ => Ok(MatrixExtension { workgroup: 0, integers: false, multiprocessors: 0 }),
    }
}

/// The parts of the extension available on a device that was opened by [`request_device`] or in the same way.
pub(super) fn enabled(adapter: &wgpu::Adapter, device: &wgpu::Device) -> Result<MatrixExtension, MatrixReason> {
    let offered = offered(adapter)?;
    // SAFETY: the device is not destroyed here.
    let opened = unsafe { device.as_hal::<Vulkan>() }.ok_or(MatrixReason::NoExtension)?;
    let takes_words = device.features().contains(wgpu::Features::PASSTHROUGH_SHADERS);
    let is_enabled = takes_words && opened.enabled_device_extensions().contains(&EXTENSION);
    if is_enabled { Ok(offered) } else { Err(MatrixReason::NotOpenedWithExtension) }
}

/// An adapter's properties of workgroup-scope matrices.
fn of_workgroups(adapter: &wgpu::hal::vulkan::Adapter) -> MatrixExtension {
    let mut counts = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let tells_count = adapter.physical_device_capabilities().supports_extension(ash::nv::shader_sm_builtins::NAME);
    let mut properties = Properties {
        s_type: vk::StructureType::from_raw(1_000_593_002),
        p_next: if tells_count { ptr::from_mut(&mut counts).cast() } else { ptr::null_mut() },
        workgroup_invocations: 0,
        flexible_dimensions: 0,
        reserved_bytes: 0,
    };
    let mut all = vk::PhysicalDeviceProperties2 { p_next: ptr::from_mut(&mut properties).cast(), ..Default::default() };
    let instance = adapter.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to this instance and supports the extensions of all structures of the chain,
    // which have their types in their first members.
    unsafe { instance.get_physical_device_properties2(adapter.raw_physical_device(), &mut all) };
    let mut bytes = vk::PhysicalDeviceShaderFloat16Int8Features::default();
    let mut features = vk::PhysicalDeviceFeatures2 { p_next: ptr::from_mut(&mut bytes).cast(), ..Default::default() };
    // SAFETY: as above. The structure is part of Vulkan 1.2, which a device with the extension has.
    unsafe { instance.get_physical_device_features2(adapter.raw_physical_device(), &mut features) };
    let integers = bytes.shader_int8 == vk::TRUE;
    MatrixExtension { workgroup: properties.workgroup_invocations, integers, multiprocessors: counts.shader_sm_count }
}
