//! Models in browsers: packages from bytes, requests as JSON or typed arrays, tables as columns, named tensors, and
//! prompts, on WebGPU or the CPU.
//!
//! `cargo xtask web` builds it for `wasm32-unknown-unknown`, with its JavaScript bindings; `web/rewire.js` runs it in a
//! worker. On other targets only the parts without JavaScript are built.
#![forbid(unsafe_code)]

mod backend;
#[cfg(feature = "ranker")]
mod columns;
#[cfg(feature = "decoder")]
mod decoder;
mod failure;
#[cfg(target_arch = "wasm32")]
mod js;
#[cfg(feature = "ranker")]
mod opened;
#[cfg(feature = "models")]
mod predictor;
#[cfg(feature = "models")]
mod program;

#[cfg(feature = "ranker")]
pub use columns::{Lists, Requests, Values};
#[cfg(feature = "decoder")]
pub use decoder::OpenedDecoder;
pub use failure::Failure;
#[cfg(feature = "ranker")]
pub use opened::Opened;
#[cfg(feature = "models")]
pub use predictor::OpenedPredictor;
#[cfg(feature = "models")]
pub use program::{OpenedProgram, RawTensor};
