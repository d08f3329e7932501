//! Graph rewriting, lowering and WGSL emission.
#![forbid(unsafe_code)]

pub mod emit;
pub mod plan;
