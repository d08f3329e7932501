//! Functional operators.
//!
//! Jagged tensors are values `[total, ..]` with a [`Ragged`](rewire_graph::Ragged). The first `contextual_seq_len` rows of a sample are
//! its contextual prefix, the last `num_targets` rows are candidates, and the rows in between are history.

mod attention;
mod jagged;
mod mask;
mod position;
mod sla;
mod stu;
mod time;
mod truncation;

pub use attention::{Attention, SeqLen, delta_hstu_mha, hstu_mha, own_hstu_mha, target_hstu_mha};
pub use jagged::{concat_2d_jagged, jagged_dense_bmm_broadcast_add, last_rows, split_2d_jagged};
pub use mask::{IntervalMask, Pairs, StandardMask};
pub use position::{
    Positions, TimeBucketFn, TimeBuckets, add_positional_embeddings, add_timestamp_positional_embeddings,
};
pub use sla::{SemiLocal, build_sla_func_tensor};
pub use stu::{
    NormMulDropout, Uvqk, UvqkWeights, hstu_compute_output, hstu_compute_uqvk, hstu_preprocess_and_attention,
    norm_mul_dropout,
};
pub use time::rounded_units;
pub use truncation::{Truncation, stu_truncation};
