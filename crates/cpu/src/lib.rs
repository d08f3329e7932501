//! Kernels on the CPU, and the work of several threads side by side. It is a crate of its own as it is optimised for speed where all else
//! is for size.

#[cfg_attr(not(feature = "kernels"), path = "kernels/absent.rs")]
mod kernels;
pub mod parallel;

pub use kernels::*;
