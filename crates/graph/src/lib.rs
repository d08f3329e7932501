//! Typed tensor graphs with symbolic sizes.
//!
//! Model code runs on symbolic [`Tensor`]s in the modules of a [`Scope`] and produces a [`Graph`] of operators. This
//! crate checks, draws and interprets the graph. Other crates rewrite and lower it; nothing here depends on devices.
//!
//! - **Types.** A [`Type`] is a [`DType`], a shape and a [`Layout`]. Extents are [`Dim`]s: constants, or sums of
//!   symbols, such as a number of rows that a run determines.
//! - **The shape program.** Lengths, offsets, totals and maxima are values with [`Layout::Host`]: integers that are
//!   computed on the host before each run ([`op::HostOp`]). [`Ragged`] bundles the values that divide rows among
//!   samples.
//! - **Operators.** [`op::Op`] infers types and holds the attributes. Most operators are [`op::Elementwise`]: a scalar
//!   expression of [`pointwise`] defines them, and the interpreter and all kernels share it.
//! - **Scores.** Attention is [`Tensor::scores`], pointwise operators on the scores, such as a mask, and
//!   [`Tensor::weighted_sum`].
//!
//! An operator that rejects its operands does not stop the trace: [`Scope::finish`] returns the first error, with
//! operator, module path and argument.
//!
//! ```
//! use rewire_graph::{DType, HostTensor, Scope, interpret};
//! use std::collections::HashMap;
//!
//! // Causal SiLU attention over samples of any length.
//! let scope = Scope::new();
//! let samples = scope.size("samples");
//! let rows = scope.lengths("lengths", &samples);
//! let shape = [rows.total.clone(), 1.into(), 2.into()];
//! let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F32, &shape));
//! let causal = rows.row_index(&rows, 1).ge(&rows.key_index(&rows, 1));
//! let weights = q.scores(&k, &rows, &rows).silu();
//! let weights = causal.select(&weights, &scope.scalar(DType::F32, 0.0));
//! let graph = scope.finish(&[("out", weights.weighted_sum(&v, &rows, &rows))])?;
//! println!("{}", graph.text());
//!
//! let tensor = HostTensor::f32(vec![3, 1, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
//! let mut inputs: HashMap<_, _> = ["q", "k", "v"].map(|name| (name.to_owned(), tensor.clone())).into();
//! inputs.insert("lengths".to_owned(), HostTensor::lengths(&[2, 1]));
//! let out = &interpret(&graph, &inputs, &HashMap::new())?["out"];
//! assert_eq!(out.shape(), [3, 1, 2]);
//! // The first row sees itself alone: silu(1) of [1, 0].
//! assert!((out.to_f64()[0] - 0.7310586).abs() < 1e-6 && out.to_f64()[1] == 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod code;
mod differentiate;
mod dim;
mod dtype;
mod error;
mod graph;
mod interpret;
mod keys;
pub mod limits;
mod names;
pub mod nest;
mod number;
pub mod op;
pub mod pointwise;
mod scope_tags;
pub mod shape;
mod sorting;
mod storage;
mod tensor;
mod trace;
mod ty;

pub use code::Coded;
pub use differentiate::{DifferentiateError, Seed, differentiate};
pub use dim::{Dim, Symbol};
pub use dtype::{DType, Scalar};
pub use error::{GraphError, TypeError};
pub use graph::{Copies, Graph, Ids, Node, NodeId, ParameterSpec, Remarks, SizeDef, SizeSource, Value, reached};
pub use interpret::{Array, InterpretError, interpret};
pub use keys::keys_to;
pub use names::{nearest_names, similar_name};
pub use number::Number;
pub use sorting::{Arrange, Ordered};
pub use storage::Format;
pub use tensor::{Element, HostTensor, SharedBytes, StoredTypeError, TensorSizeError};
pub use trace::{Axis, Mode, Operand, Ragged, Scope, Shape, Tensor};
pub use ty::{Layout, Type};
