//! Typed tensor graphs with symbolic sizes.
#![forbid(unsafe_code)]

mod dim;
mod dtype;
mod error;
mod graph;
mod interpret;
pub mod op;
pub mod pointwise;
mod tensor;
mod trace;
mod ty;

pub use dim::{Dim, Symbol};
pub use dtype::{DType, Scalar};
pub use error::{GraphError, TypeError};
pub use graph::{Graph, Node, NodeId, SizeDef, SizeSource, Value};
pub use interpret::{Array, InterpretError, interpret};
pub use tensor::{HostTensor, TensorSizeError};
pub use trace::{Ragged, Scope, Tensor};
pub use ty::{Layout, Type};
