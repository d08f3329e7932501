//! Graph rewriting and lowering to scheduled loop nests.
//!
//! ```text
//! Graph --optimize--> Graph of fused operators --lower--> Plan
//! ```
//!
//! - [`optimize`] runs the [`passes`]: common subexpressions, [`rules`] that simplify, dead code, and fusion, which
//!   gives every operator a kernel with as much of its surroundings as that kernel can compute. The graph is
//!   verified after each. [`passes::Pipeline`] runs other passes, or leaves some out.
//! - [`rules`] is the mechanism for rewrites of your own: a pattern and its replacement are written like model code.
//! - [`lower()`] turns fused operators into the steps of a [`plan::Plan`]. Each is a loop nest. A plan knows no device and can be serialized.
//! - [`schedule`] tells how a loop nest runs: as a map, a row reduction, a matrix product or attention.
//! - [`recompute`] computes values again instead of keeping them, under a limit of memory.
//! - [`split`] cuts a graph in two that are compiled separately, and joins them again.
//! - [`cost`] counts the bytes and operations of a kernel and predicts its time.
//! - [`device`] is what a device offers, and kernels as data; the crate `rewire-emit` writes their WGSL.
//!
//! ```
//! use rewire_graph::{DType, Scope};
//! use rewire_graph_rewrite::{lower, optimize};
//!
//! let scope = Scope::new();
//! let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
//! let weight = scope.parameter("weight", DType::F32, &[16.into(), 8.into()]);
//! let bias = scope.parameter("bias", DType::F32, &[16.into()]);
//! let graph = scope.finish(&[("y", x.linear(&weight, Some(&bias)).silu())])?;
//! println!("{}", graph.text());
//!
//! let (graph, report) = optimize(graph)?;
//! for pass in &report.passes {
//!     println!("{pass}");
//! }
//! let plan = lower(&graph)?;
//! assert_eq!(plan.steps.len(), 1); // the product with its transposed weight, bias and activation
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod cost;
pub mod device;
pub mod lower;
pub mod passes;
pub mod plan;
pub mod prove;
pub mod recompute;
pub mod rules;
pub mod schedule;
pub mod split;

pub use lower::{RewriteError, lower};
pub use passes::{PassReport, Report, optimize};
