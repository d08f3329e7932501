//! Imports models that PyTorch exported, and ONNX models, as graphs.
//!
//! [`pt2::read`] converts an archive of `torch.export.save`, with or without `run_decompositions()`, to a
//! [`rewire_graph::Graph`] with its parameters. Symbolic sizes stay symbolic; arithmetic of sizes becomes part of the shape
//! program. Nothing in a file is executed: data that needs pickle is rejected. [`ImportError::Unsupported`] lists all
//! operators without a lowering.
#![cfg_attr(not(feature = "readers"), allow(dead_code))]
#![forbid(unsafe_code)]

#[cfg(feature = "readers")]
mod array;
#[cfg(feature = "readers")]
mod aten;
#[cfg(feature = "readers")]
mod call;
#[cfg(feature = "readers")]
mod context;
mod elements;
mod error;
mod file;
#[cfg(feature = "readers")]
mod float;
mod minifloat;
mod model;
#[cfg(feature = "readers")]
pub mod onnx;
#[cfg(feature = "readers")]
pub mod pt2;
#[cfg(feature = "readers")]
mod recurrent;
mod scalar_type;
#[cfg(feature = "readers")]
mod size;
#[cfg(feature = "readers")]
mod sizes;
pub mod tensors;
#[cfg(feature = "readers")]
mod value;

pub use error::{ImportError, Unsupported};
#[cfg(feature = "readers")]
pub use file::parse;
pub use file::{is_model, read};
pub use model::{ImportedModel, OutputKind, OutputSpec, TensorSpec};
pub use scalar_type::ScalarType;
pub use tensors::TypedTensor;
