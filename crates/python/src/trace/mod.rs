//! Tracing of models from Python: symbolic values with the names of numpy and of the Rust library.

mod extent;
mod graph;
mod ragged;
mod scope;
mod tensor;

pub use graph::Graph;
pub use ragged::Ragged;
pub use scope::Scope;
pub use tensor::Tensor;

pub use extent::Size;
