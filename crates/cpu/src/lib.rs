//! Kernels on the CPU, and parallel execution. It is a separate crate because it is optimised for speed, and everything
//! else for size.

#[cfg_attr(not(feature = "kernels"), path = "kernels/absent.rs")]
mod kernels;
pub mod parallel;

pub use kernels::*;
