//! Layout of tensors in device memory, and which of them share a buffer.

mod layout;
mod slots;

pub(crate) use layout::Layout;
pub(crate) use slots::{Lifetime, SlotPlan};
