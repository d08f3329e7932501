//! Layout of tensors in device memory, which of them share a buffer, and buffers that are used again.

mod layout;
mod lease;
mod slots;
mod spares;

pub(crate) use layout::Layout;
pub(crate) use lease::{Lease, SpareBuffers, lock};
pub(crate) use slots::{Lifetime, SlotPlan};
pub(crate) use spares::Spares;
