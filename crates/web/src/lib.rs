//! Models in browsers: packages from bytes, requests as JSON or typed arrays, tables as columns, named tensors, and
//! prompts, on WebGPU or the CPU.
//!
//! `cargo xtask web` builds it for `wasm32-unknown-unknown`, with its JavaScript bindings; `web/rewire.js` runs it in a
//! worker. On other targets only the parts without JavaScript are built.
#![forbid(unsafe_code)]

mod columns;
#[cfg(feature = "decoder")]
mod decoder;
mod failure;
#[cfg(target_arch = "wasm32")]
mod js;
mod opened;
mod predictor;
mod program;

pub use columns::{Lists, Requests, Values};
#[cfg(feature = "decoder")]
pub use decoder::OpenedDecoder;
pub use failure::Failure;
pub use opened::Opened;
pub use predictor::OpenedPredictor;
pub use program::{OpenedProgram, RawTensor};
