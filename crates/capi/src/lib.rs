//! The C API: `rewire.h` declares its functions.
//!
//! Functions that can fail return a [`Status`]; [`rewire_message`] returns the message. Handles are opaque; the caller that got one frees
//! it, once. A null handle is an error and has no other effect. Nothing unwinds into the caller.
//!
//! Any number of threads may rank with one ranker at the same time. Batches and rankings may be shared as long as no thread changes or
//! frees them meanwhile.

mod arrow;
mod batch;
mod border;
mod cancellation;
mod decoder;
#[cfg(feature = "gpu")]
mod device;
#[cfg(feature = "folders")]
mod evaluator;
#[cfg(all(feature = "gpu", target_vendor = "apple"))]
mod metal;
mod model;
mod options;
mod predictor;
mod ranker;
mod ranking;
#[cfg(all(feature = "gpu", any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
mod vulkan;

pub use arrow::{rewire_batch_extend_arrow, rewire_ranking_export};
pub use batch::{
    Batch, Column, Integers, REWIRE_CANDIDATES, REWIRE_CONTEXTUAL, REWIRE_HISTORY, REWIRE_INT32, REWIRE_INT64,
    REWIRE_UINT32, rewire_batch_clear, rewire_batch_extend, rewire_batch_free, rewire_batch_new,
};
pub use border::{Status, rewire_message, rewire_version};
pub use cancellation::{
    CancellationToken, rewire_cancellation_token_cancel, rewire_cancellation_token_free, rewire_cancellation_token_new,
};
pub use decoder::{
    Decoder, GenerateOptions, Generated, Generation, OnToken, TokenLists, rewire_decoder_free,
    rewire_decoder_from_bytes, rewire_decoder_load, rewire_decoder_vocab_size, rewire_generate,
    rewire_generate_options_default, rewire_generation_columns, rewire_generation_free,
};
#[cfg(feature = "folders")]
pub use evaluator::{
    Evaluation, Evaluator, Value, Values, rewire_evaluation_add_arrow, rewire_evaluation_free, rewire_evaluation_new,
    rewire_evaluation_values, rewire_evaluator_batch_size, rewire_evaluator_free, rewire_evaluator_load,
};
#[cfg(all(feature = "gpu", target_vendor = "apple"))]
pub use metal::rewire_options_metal_device;
pub use model::{
    Model, NamedTensor, REWIRE_BF16, REWIRE_BOOL, REWIRE_F16, REWIRE_F32, REWIRE_F64, REWIRE_I8, REWIRE_I16,
    REWIRE_I32, REWIRE_I64, REWIRE_U8, REWIRE_U16, REWIRE_U32, REWIRE_U64, Results, rewire_model_free,
    rewire_model_from_bytes, rewire_model_input, rewire_model_inputs, rewire_model_open, rewire_model_run,
    rewire_results_count, rewire_results_free, rewire_results_tensor,
};
pub use options::{
    Options, REWIRE_KERNEL_AUTO, REWIRE_KERNEL_CPU, REWIRE_KERNEL_WGPU, rewire_options_adapter, rewire_options_free,
    rewire_options_kernel, rewire_options_kernel_for, rewire_options_new, rewire_options_pipelines,
};
pub use predictor::{
    Predictor, rewire_predict_arrow, rewire_predictor_describe, rewire_predictor_free, rewire_predictor_from_bytes,
    rewire_predictor_load,
};
pub use ranker::{
    Ranker, rewire_ranker_free, rewire_ranker_from_bytes, rewire_ranker_load, rewire_ranker_task, rewire_ranker_tasks,
};
pub use ranking::{Ranking, Scores, rewire_rank, rewire_rank_cancellable, rewire_ranking_free, rewire_ranking_scores};
#[cfg(all(feature = "gpu", any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub use vulkan::{
    VulkanAdapter, VulkanInstance, rewire_options_vulkan_device, rewire_vulkan_adapter_device_info,
    rewire_vulkan_adapter_free, rewire_vulkan_adapter_new,
};
