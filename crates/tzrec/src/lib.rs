//! Reads the files of [TorchEasyRec](https://github.com/alibaba/TorchEasyRec): pipeline configurations in protobuf text format
//! ([`Pipeline`]) and PyTorch distributed checkpoints ([`Checkpoint`]). [`write_checkpoint`] writes such checkpoints.
//!
//! Nothing in a file is executed, and memory is bounded by the sizes of the files.
#![forbid(unsafe_code)]

mod checkpoint;
mod pipeline;

pub use checkpoint::{
    Checkpoint, CheckpointError, DynamicTable, ElementType, OptimizerState, Saved, Shard, ShardWriter, StoredTensor,
    Unfinished, Written, read_dynamic, write_checkpoint,
};
pub use pipeline::{Pipeline, PipelineError};
