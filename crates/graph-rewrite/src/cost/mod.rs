//! Cost of kernels: bytes and operations, and the predicted time on a machine.
//!
//! [`Count::of`] is the only cost count of kernels. Benchmarks compare it with measured times, drawings show it, and
//! fusion uses it for decisions.

mod computation;
mod counter;
mod graph;
mod loops;
mod machine;

pub use crate::count::{ASSUMED_ROWS, ASSUMED_SAMPLES, Count, Sizes, operations};
pub use counter::Counter;
pub(crate) use graph::bytes;
pub use graph::{kernels, operators, traffic};
pub use machine::HardwareModel;
