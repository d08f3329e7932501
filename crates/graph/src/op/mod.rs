//! Operators.

mod host;

pub use host::HostOp;
