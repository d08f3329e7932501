//! Graph rewriting, lowering and WGSL emission.
#![forbid(unsafe_code)]

pub mod emit;
pub mod lower;
pub mod passes;
pub mod plan;
pub mod rules;

pub use lower::{RewriteError, lower};
pub use passes::{PassReport, Report, optimize};
