//! Model families of TorchEasyRec pipelines, traced from their configurations.
//!
//! [`trace`] makes a graph of a whole `EasyRecConfig`. Its inputs are those of [`rewire_features`], its parameters have the names of the
//! reference's state dict without the leading `model.`, its outputs those of the reference's predictions.
#![forbid(unsafe_code)]

mod hstu;
mod models;
mod modules;
mod trace;

pub use hstu::{HISTORIES, TracedCached, trace_cached};
pub use trace::{Output, OutputRows, TraceError, Traced, trace};
