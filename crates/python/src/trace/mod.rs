//! Models that are traced from Python: symbolic values under the names of numpy and of the library in Rust.

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
