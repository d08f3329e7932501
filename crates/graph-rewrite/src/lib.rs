//! Graph rewriting and lowering to scheduled loop nests.
//!
//! ```text
//! Graph --optimize--> Graph of fused operators --lower--> Plan
//! ```
//!
//! - [`optimize`] runs the [`passes`]: common subexpressions, simplification [`rules`], dead code, and fusion, which
//!   forms kernels from operators and as much of their surroundings as one kernel can compute. The graph is verified
//!   after each pass. [`passes::Pipeline`] runs other passes, or omits some.
//! - [`rules`] supports custom rewrites: a pattern and its replacement are written like model code.
//! - [`lower()`] turns fused operators into the steps of a [`plan::Plan`]. Each is a loop nest. A plan is independent
//!   of devices and can be serialized.
//! - [`schedule`] determines how a loop nest runs: as a map, a row reduction, a matmul, attention or a segmented
//!   reduction.
//! - [`recompute`] recomputes values instead of keeping them, to meet a memory limit.
//! - [`split`] splits a graph in two that are compiled separately, and joins them again.
//! - [`cost`] counts the bytes and operations of a kernel and predicts its time.
//! - [`device`] describes device capabilities, and kernels as data; the crate `rewire-emit` generates their WGSL.
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
mod count;
pub mod device;
mod error;
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
