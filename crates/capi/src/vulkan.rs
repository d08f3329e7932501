//! An app's own Vulkan device.

use crate::border::{Failure, Status, call, change, free, give, read, slice, text};
use crate::device::{FEATURES, request};
use crate::options::Options;
use ash::vk::{self, Handle};
use ash::{StaticFn, khr};
use rewire::Gpu;
use rewire::runtime::wgpu;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};
use thiserror::Error;
use wgpu::hal::DropCallback;
use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan::{Adapter, Instance, PhysicalDeviceFeatures};

/// The instance extension for querying device features.
const PROPERTIES: &CStr = khr::get_physical_device_properties2::NAME;

/// The app's own Vulkan instance. The app owns it and keeps it open as long as anything created with it exists.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VulkanInstance {
    /// `VkInstance`.
    pub instance: *mut c_void,
    /// `vkGetInstanceProcAddr` of the loader, as a `PFN_vkVoidFunction`.
    pub get_instance_proc_addr: Option<unsafe extern "C" fn()>,
    /// `apiVersion` that it was created with: that of the device or later, up to 1.3.
    pub api_version: u32,
    /// Extensions that it was created with. They must include `VK_KHR_get_physical_device_properties2`.
    pub extensions: *const *const c_char,
    /// Number of extensions.
    pub extension_count: usize,
}

/// A physical device of the app's own Vulkan instance.
#[derive(Debug)]
pub struct VulkanAdapter {
    adapter: wgpu::Adapter,
    info: DeviceInfo,
}

/// Why an app's device cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
enum VulkanError {
    #[error("the instance was created without {0:?}: expected it among its extensions")]
    Extension(&'static CStr),
    #[error("the instance was created with apiVersion {0}: expected {1} or later")]
    Version(Version, Version),
    #[error("the physical device does not conform to Vulkan, or its first queue family does not support graphics")]
    Unfit,
    #[error("queue family {family} has no queue {queue}, or does not support compute")]
    Queue { family: u32, queue: u32 },
    #[error("Vulkan reports: {0}")]
    Refused(String),
}

impl From<VulkanError> for Failure {
    fn from(error: VulkanError) -> Self {
        Self::of(Status::Model)(&error)
    }
}

/// A version of Vulkan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version(u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", vk::api_version_major(self.0), vk::api_version_minor(self.0))
    }
}

/// The requirements for creating a device. The Vulkan structure points into the other fields, which must not move.
struct DeviceInfo {
    info: vk::DeviceCreateInfo<'static>,
    extensions: Vec<&'static CStr>,
    _names: Vec<*const c_char>,
    features: NonNull<PhysicalDeviceFeatures>,
}

impl DeviceInfo {
    fn new(adapter: &Adapter, features: wgpu::Features) -> Self {
        let mut extensions = adapter.required_device_extensions(features);
        // No fields are printed.
        extensions.retain(|name| ![khr::swapchain::NAME, khr::swapchain_mutable_format::NAME].contains(name));
        let names: Vec<*const c_char> = extensions.iter().map(|name| name.as_ptr()).collect();
        let features = Box::leak(Box::new(adapter.physical_device_features(&extensions, features)));
        let owned = NonNull::from(&mut *features);
        let mut info = features.add_to_device_create(vk::DeviceCreateInfo::default());
        (info.pp_enabled_extension_names, info.enabled_extension_count) = (names.as_ptr(), names.len() as u32);
        Self { info, extensions, _names: names, features: owned }
    }
}

impl Drop for DeviceInfo {
    fn drop(&mut self) {
        // SAFETY: `new` leaked it to this alone.
        drop(unsafe { Box::from_raw(self.features.as_ptr()) });
    }
}

impl fmt::Debug for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceInfo").field("extensions", &self.extensions).finish_non_exhaustive()
    }
}

impl VulkanInstance {
    /// # Safety
    /// As of [`rewire_vulkan_adapter_new`].
    unsafe fn adapter(&self, physical_device: vk::PhysicalDevice) -> Result<VulkanAdapter, Failure> {
        let load = self.get_instance_proc_addr;
        let load = load.ok_or_else(|| Failure::argument("get_instance_proc_addr", "`vkGetInstanceProcAddr`"))?;
        // SAFETY: the caller's promise.
        unsafe { self.check_extensions() }?;
        // SAFETY: the caller's promise: the pointer is that function, whose type is not expressed in C.
        let load = unsafe { mem::transmute::<unsafe extern "C" fn(), vk::PFN_vkGetInstanceProcAddr>(load) };
        let functions = StaticFn { get_instance_proc_addr: load };
        let instance = vk::Instance::from_raw(self.instance as u64);
        // SAFETY: the caller's promise.
        let raw = unsafe { ash::Instance::load(&functions, instance) };
        // SAFETY: the caller's promise.
        let version = unsafe { raw.get_physical_device_properties(physical_device) }.api_version;
        let needed = version.min(vk::API_VERSION_1_3);
        if self.api_version < needed {
            return Err(VulkanError::Version(Version(self.api_version), Version(needed)).into());
        }
        // SAFETY: the caller's promise. The list contains the extensions whose functions are called.
        let instance = unsafe {
            let entry = ash::Entry::from_static_fn(functions);
            let (extensions, flags) = (vec![PROPERTIES], wgpu::InstanceFlags::empty());
            let thresholds = wgpu::MemoryBudgetThresholds::default();
            Instance::from_raw(entry, raw, self.api_version, 0, None, extensions, flags, thresholds, false, stays())
        };
        let instance = instance.map_err(refused)?;
        let exposed = instance.expose_adapter(physical_device).ok_or(VulkanError::Unfit)?;
        let info = DeviceInfo::new(&exposed.adapter, exposed.features & FEATURES);
        // SAFETY: the adapter belongs to that instance.
        let adapter = unsafe { wgpu::Instance::from_hal::<Vulkan>(instance).create_adapter_from_hal(exposed) };
        Ok(VulkanAdapter { adapter, info })
    }

    /// # Safety
    /// As of [`rewire_vulkan_adapter_new`].
    unsafe fn check_extensions(&self) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let names = unsafe { slice(self.extensions, self.extension_count, "extensions") }?;
        for &name in names {
            // SAFETY: the caller's promise.
            if unsafe { text(name, "extensions") }?.as_bytes() == PROPERTIES.to_bytes() {
                return Ok(());
            }
        }
        Err(VulkanError::Extension(PROPERTIES).into())
    }
}

impl VulkanAdapter {
    /// # Safety
    /// As of [`rewire_options_vulkan_device`].
    unsafe fn gpu(&self, device: vk::Device, family: u32, queue: u32) -> Result<Gpu, Failure> {
        // SAFETY: it destroys nothing.
        let adapter = unsafe { self.adapter.as_hal::<Vulkan>() }.ok_or(VulkanError::Unfit)?;
        let instance = adapter.shared_instance().raw_instance();
        // SAFETY: the physical device belongs to the instance.
        let families = unsafe { instance.get_physical_device_queue_family_properties(adapter.raw_physical_device()) };
        let computes = |one: &vk::QueueFamilyProperties| one.queue_flags.contains(vk::QueueFlags::COMPUTE);
        if !families.get(family as usize).is_some_and(|one| computes(one) && queue < one.queue_count) {
            return Err(VulkanError::Queue { family, queue }.into());
        }
        let request = request(&self.adapter);
        let (features, limits, hints) = (request.required_features, &request.required_limits, &request.memory_hints);
        // SAFETY: the caller's promise.
        let opened = unsafe {
            let device = ash::Device::load(instance.fp_v1_0(), device);
            adapter.device_from_raw(device, stays(), &self.info.extensions, features, limits, hints, family, queue)
        };
        let opened = opened.map_err(refused)?;
        drop(adapter);
        // SAFETY: the device belongs to that adapter and has those features.
        let (device, queue) = unsafe { self.adapter.create_device_from_hal(opened, &request) }.map_err(refused)?;
        Ok(Gpu::from_device(device, queue))
    }
}

/// The app's objects stay open.
fn stays() -> Option<DropCallback> {
    Some(Box::new(|| {}))
}

fn refused(error: impl fmt::Display) -> VulkanError {
    VulkanError::Refused(error.to_string())
}

/// Examines a physical device of the app's instance. For Windows, Linux, Android and FreeBSD.
///
/// `REWIRE_STATUS_MODEL` if the instance lacks the extension or the version, or the device is not suitable: it must conform to Vulkan, and
/// its first queue family must support graphics.
///
/// # Safety
/// `instance` is null or as described, `physical_device` is a `VkPhysicalDevice` of it, `out` points to a variable for the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_vulkan_adapter_new(
    instance: *const VulkanInstance,
    physical_device: *mut c_void,
    out: *mut *mut VulkanAdapter,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let instance = unsafe { read(instance, "instance") }?;
        if instance.instance.is_null() || physical_device.is_null() {
            return Err(Failure::argument("instance, physical_device", "handles of Vulkan"));
        }
        // SAFETY: the caller's promise.
        let adapter = unsafe { instance.adapter(vk::PhysicalDevice::from_raw(physical_device as u64)) }?;
        // SAFETY: the caller's promise.
        unsafe { give(adapter, out) }
    })
}

/// The requirements for creating the app's device: a `const VkDeviceCreateInfo *` with features (`pNext`, `pEnabledFeatures`) and
/// extensions, and without queues. The app copies it and adds its queues and its own requirements. Valid as long as the adapter; null for
/// null.
///
/// # Safety
/// `adapter` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_vulkan_adapter_device_info(adapter: *const VulkanAdapter) -> *const c_void {
    // SAFETY: the caller's promise.
    unsafe { read(adapter, "adapter") }.map_or(ptr::null(), |adapter| ptr::from_ref(&adapter.info.info).cast())
}

/// Runs models that are loaded with these options on the app's device, with `REWIRE_KERNEL_AUTO` and `REWIRE_KERNEL_WGPU`.
///
/// The app owns the device and the queue. It destroys them after all options and rankers that use them are freed; the
/// adapter may be freed earlier. Nothing else may submit to the queue while a ranker is loaded, ranks or is freed. A
/// lost device is not reopened.
///
/// # Safety
/// `options` is null or a handle that no other thread uses during the call, `adapter` is null or a handle. `device` is a `VkDevice` of it,
/// created with all requirements of `rewire_vulkan_adapter_device_info` and with the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_vulkan_device(
    options: *mut Options,
    adapter: *const VulkanAdapter,
    device: *mut c_void,
    queue_family: u32,
    queue: u32,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (options, adapter) = unsafe { (change(options, "options")?, read(adapter, "adapter")?) };
        if device.is_null() {
            return Err(Failure::argument("device", "a handle of Vulkan"));
        }
        // SAFETY: the caller's promise.
        let gpu = unsafe { adapter.gpu(vk::Device::from_raw(device as u64), queue_family, queue) }?;
        options.options.gpu = Some(gpu);
        Ok(())
    })
}

/// Frees an adapter. Devices stay valid.
///
/// # Safety
/// `adapter` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_vulkan_adapter_free(adapter: *mut VulkanAdapter) {
    // SAFETY: the caller's promise.
    unsafe { free(adapter) }
}
