//! rewire captures a model as a graph, rewrites the graph, emits fused WGSL kernels from it and runs them on
//! Vulkan, Metal, DX12 or WebGPU, or on the CPU.
//!
//! # Quick start
//!
//! Write model code with symbolic tensors and run it at any batch size:
//!
//! ```
//! use rewire::prelude::*;
//!
//! let scope = Scope::new();
//! let rows = scope.size("rows");
//! let x = scope.input("x", DType::F32, (rows, 2));
//! let weight = scope.parameter("weight", DType::F32, [2, 3]);
//! let graph = scope.finish(&[("y", x.matmul(&weight).silu())])?;
//!
//! let (graph, _) = rewire::optimize(graph)?;
//! let plan = rewire::lower(&graph)?;
//! let weight = HostTensor::f32([2, 3], &[1.0, 0.0, 1.0, 0.0, 1.0, 1.0])?;
//! let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
//! let mut session = Model::load(plan, [("weight", weight)], options)?.session();
//!
//! let x = HostTensor::f32([1, 2], &[1.0, 2.0])?;
//! let outputs = session.run(&Inputs::new().with("x", x))?;
//! let y = outputs.get("y").map(HostTensor::to_f32).unwrap_or_default();
//! assert!((y[0] - 0.7310586).abs() < 1e-6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Kernel`] selects the backend: `Auto` uses a hardware GPU if there is one.
//!
//! # Ranking
//!
//! [`rank::Ranker`] loads a model folder and ranks candidates for users:
//!
//! ```no_run
//! use rewire::rank::{RankOptions, Ranker, Request};
//!
//! let ranker = Ranker::load("model".as_ref(), &RankOptions::default())?;
//! let request = Request::new("u1").history("item_id", [3, 4]).candidates("item_id", [7, 9]);
//! for ranked in ranker.rank(&[request])? {
//!     println!("{}: {:?}", ranked.user, ranked.candidates);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! All are on by default: `gpu` (Vulkan, Metal, DX12 and WebGPU; without it only an app's own device), `cpu` (CPU kernels), `emit` (emits
//! GPU kernels; without it a package supplies them), `parallel` (thread pools, see [`ThreadPool`]), `files` (models, weights and caches in
//! files), and `train` (training; requires `cpu`).
#![forbid(unsafe_code)]
// Without `emit`, everything that only emission needs is unused.
#![cfg_attr(not(feature = "emit"), allow(dead_code, unused_imports))]

#[cfg(feature = "files")]
mod caches;
pub mod delta;
mod error;
pub mod events;
#[cfg(feature = "files")]
mod files;
pub mod generate;
pub mod package;
pub mod predict;
pub mod program;
pub mod rank;
#[cfg(feature = "train")]
pub mod train;
pub mod weights;

#[cfg(feature = "files")]
pub use caches::cache_folder;
pub use error::describe;
#[cfg(feature = "files")]
pub use files::{write_file, write_file_with};
#[cfg(feature = "emit")]
pub use rewire_emit as emit;
pub use rewire_graph as graph;
pub use rewire_graph_rewrite as graph_rewrite;
pub use rewire_hstu as hstu;
pub use rewire_import as import;
pub use rewire_runtime as runtime;

pub use rewire_graph::{GraphError, HostTensor};
pub use rewire_graph_rewrite::{RewriteError, lower, optimize};
pub use rewire_runtime::{
    DeviceInfo, DeviceKind, DeviceTunings, Gpu, GpuError, Kernel, KernelRule, Matrices, MatrixReason, MatrixTier,
    Model, PipelineStore, Session, Tables, ThreadPool, ThreadPoolError, ThreadPoolOptions, TuningStore, Workers,
    block_on, devices,
};
#[cfg(feature = "files")]
pub use rewire_runtime::{MAPPED_BYTES, Mapping};

/// The types that most programs need.
pub mod prelude {
    pub use crate::rank::{RankOptions, Ranker, Request};
    pub use crate::weights::Weights;
    pub use rewire_graph::op::Registry;
    pub use rewire_graph::{DType, Dim, Graph, HostTensor, Ragged, Scope, Tensor};
    pub use rewire_graph_rewrite::passes::{Context, Pass, Pipeline};
    pub use rewire_graph_rewrite::rules::{Match, Patch, Pattern, Rule, TracedRule};
    pub use rewire_runtime::{Gpu, Inputs, Kernel, Model, ModelOptions, Outputs, Session};
}
