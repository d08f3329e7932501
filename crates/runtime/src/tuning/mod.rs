//! Measured tunings, by device, kernel and sizes.

mod bucket;
mod device;
mod known;
#[cfg_attr(not(feature = "files"), path = "absent.rs")]
mod store;
mod trial;

pub(crate) use bucket::{Bucket, symbols};
#[cfg(test)]
pub(crate) use device::Device;
pub use device::DeviceTunings;
pub(crate) use known::{KernelTunings, identity};
pub use store::TuningStore;
pub(crate) use trial::{Times, Trial};
