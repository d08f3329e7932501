//! Imports models that PyTorch exported, and ONNX models, as graphs.
//!
//! [`pt2::read`] converts an archive of `torch.export.save`, with or without `run_decompositions()`, to a
//! [`rewire_graph::Graph`] with its parameters. Symbolic sizes stay symbolic; arithmetic of sizes becomes part of the shape
//! program. Nothing in a file is executed: data that needs pickle is rejected. [`ImportError::Unsupported`] lists all
//! operators without a lowering.
#![forbid(unsafe_code)]

mod array;
mod aten;
mod call;
mod context;
mod elements;
mod error;
mod file;
mod float;
mod minifloat;
mod model;
pub mod onnx;
pub mod pt2;
mod recurrent;
mod scalar_type;
mod size;
mod sizes;
pub mod tensors;
mod value;

pub use error::{ImportError, Unsupported};
pub use file::{is_model, parse, read};
pub use model::{ImportedModel, OutputKind, OutputSpec, TensorSpec};
pub use scalar_type::ScalarType;
pub use tensors::TypedTensor;
