//! Operators, modules and models of generative recommenders (HSTU).
//!
//! Everything here only traces: it writes primitives of [`rewire_graph`] into a graph.
#![forbid(unsafe_code)]

pub mod models;
pub mod modules;
mod number;
pub mod ops;
pub mod pipeline;
