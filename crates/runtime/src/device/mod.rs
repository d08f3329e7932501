//! Adapters, devices and what they offer.

mod adapters;
mod gpu;
mod mapping;

pub use adapters::{DeviceInfo, DeviceKind, DeviceLimits, devices, devices_async};
pub use gpu::Gpu;
pub(crate) use mapping::Mapping;
