//! Test support: random graphs, backends to run them on, and comparison.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod backend;
pub mod build;
pub mod case;
pub mod charts;
pub mod compare;
#[cfg(doctest)]
mod documentation;
pub mod errors;
pub mod exported;
pub mod figures;
pub mod fuzz;
pub mod golden;
pub mod gradients;
pub mod kernels;
pub mod languages;
pub mod noise;
pub mod onnx;
pub mod program;
pub mod prose;
pub mod reached;
pub mod reference;
pub mod vary;
