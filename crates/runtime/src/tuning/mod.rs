//! Tunings that were measured, by device, kernel and sizes.

mod bucket;
mod known;
#[cfg_attr(not(feature = "files"), path = "absent.rs")]
mod store;
mod trial;

pub(crate) use bucket::{Bucket, symbols};
pub(crate) use known::{KernelTunings, identity};
pub use store::TuningStore;
pub(crate) use trial::{Times, Trial};
