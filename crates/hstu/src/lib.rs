//! Operators, modules and models of generative recommenders (HSTU).
//!
//! Nothing is computed here: tracing adds primitives of [`rewire_graph`] to a graph.
#![forbid(unsafe_code)]

pub mod models;
pub mod modules;
mod number;
pub mod ops;
pub mod pipeline;
