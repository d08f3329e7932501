//! Tensor layouts in device memory, buffer reuse, and available host memory.

mod host;
mod layout;
mod lease;
#[cfg(target_os = "linux")]
mod linux;
mod spares;

pub use host::{HostMemory, HostMemoryError};
pub(crate) use layout::Layout;
pub(crate) use lease::{Lease, SpareBuffers, lock};
pub(crate) use spares::Spares;
