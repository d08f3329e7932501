//! Kernels on the CPU, and parallel execution. It is a separate crate because it is optimised for speed, and everything
//! else for size.

#[cfg_attr(not(feature = "kernels"), path = "kernels/absent.rs")]
mod kernels;
pub mod parallel;

pub use kernels::*;

/// Rows that replace those of a table, in the layout of a host tensor of the type of the copies; `None` for others.
pub type NewerRows<'a> = &'a (dyn Fn(usize) -> Option<&'a [u8]> + Sync);
