//! An app's own Metal device.

use crate::border::{Failure, Status, call, change};
use crate::device::request;
use crate::options::Options;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLCommandQueue, MTLDevice};
use rewire::runtime::wgpu;
use rewire::{Gpu, block_on};
use std::ffi::c_void;
use std::ptr;
use thiserror::Error;
use wgpu::hal::OpenDevice;
use wgpu::hal::api::Metal;
use wgpu::hal::metal::{Device, Queue};

/// Why an app's device cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
enum MetalError {
    #[error("the device is not among those that Metal lists, or does not support compute")]
    Unlisted,
    #[error("Metal reports: {0}")]
    Refused(String),
}

impl From<MetalError> for Failure {
    fn from(error: MetalError) -> Self {
        Self::of(Status::Model)(&error)
    }
}

/// The adapter of a device.
fn adapter_of(device: &ProtocolObject<dyn MTLDevice>) -> Result<wgpu::Adapter, MetalError> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::METAL;
    let adapters = block_on(wgpu::Instance::new(descriptor).enumerate_adapters(wgpu::Backends::METAL));
    let is_of = |adapter: &wgpu::Adapter| {
        // SAFETY: it destroys nothing.
        let raw = unsafe { adapter.as_hal::<Metal>() };
        raw.is_some_and(|raw| ptr::eq(raw.raw_device(), device))
    };
    adapters.into_iter().find(is_of).ok_or(MetalError::Unlisted)
}

fn gpu(
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
) -> Result<Gpu, MetalError> {
    let adapter = adapter_of(&device)?;
    let request = request(&adapter);
    // SAFETY: both are Metal objects that this value retains; features and limits are those of the device.
    let opened: OpenDevice<Metal> = unsafe {
        let device = Device::device_from_raw(device, request.required_features, &request.required_limits);
        OpenDevice { device, queue: Queue::queue_from_raw(queue, 1.0) }
    };
    // SAFETY: the device belongs to the adapter.
    let (device, queue) = unsafe { adapter.create_device_from_hal(opened, &request) }
        .map_err(|error| MetalError::Refused(error.to_string()))?;
    Ok(Gpu::from_device(device, queue))
}

/// Runs models that are loaded with these options on the app's device, with `REWIRE_KERNEL_AUTO` and `REWIRE_KERNEL_WGPU`. For macOS and
/// iOS. Not yet run on such machines.
///
/// Options and rankers retain the device and the queue. A lost device is not reopened.
///
/// # Safety
/// `options` is null or a handle that no other thread uses during the call, `device` is null or an `id<MTLDevice>`, `queue` is null or an
/// `id<MTLCommandQueue>` of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_options_metal_device(
    options: *mut Options,
    device: *mut c_void,
    queue: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { change(options, "options") }?;
        // SAFETY: the caller's promise.
        let (device, queue) = unsafe { (Retained::retain(device.cast()), Retained::retain(queue.cast())) };
        let (Some(device), Some(queue)) = (device, queue) else {
            return Err(Failure::argument("device, queue", "objects of Metal"));
        };
        options.options.gpu = Some(gpu(device, queue)?);
        Ok(())
    })
}
