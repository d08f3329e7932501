//! Ranking and generation from Kotlin and Swift: `cargo xtask mobile` builds the library and writes its bindings, which include this documentation.
//!
//! Calls are coarse and block: a batch of requests goes in, as records or as lines of JSON, and columns come out. Apps should call from a
//! background thread and stop rankings with a [`CancellationToken`]. Any number of threads may rank with one [`Ranker`] at the same time.

mod cancellation;
mod decoder;
mod error;
mod model;
mod options;
mod ranker;
mod ranking;
mod request;

pub use cancellation::CancellationToken;
pub use decoder::{Decoder, Generated, TokenListener};
pub use error::RewireError;
pub use model::{Elements, Input, Model, NamedTensor};
pub use options::{Kernel, KernelRule, Mapping, Options};
pub use ranker::{Ranker, Schema};
pub use ranking::Ranking;
pub use request::Request;

uniffi::setup_scaffolding!("rewire");

/// The version of the library.
#[uniffi::export]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
