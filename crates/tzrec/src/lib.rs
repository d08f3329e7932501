//! Reads the files of [TorchEasyRec](https://github.com/alibaba/TorchEasyRec): pipeline configurations in protobuf text
//! format ([`Pipeline`]) and PyTorch distributed checkpoints.
//!
//! Nothing in a file is executed, and memory is bounded by the sizes of the files.
#![forbid(unsafe_code)]

mod pipeline;

pub use pipeline::{Pipeline, PipelineError};
