//! Typed tensor graphs with symbolic sizes.
#![forbid(unsafe_code)]

mod dim;
mod dtype;
pub mod op;
pub mod pointwise;
mod tensor;

pub use dim::{Dim, Symbol};
pub use dtype::{DType, Scalar};
pub use tensor::{HostTensor, TensorSizeError};
