use super::{ConfigError, count, rows, width};
use crate::number::{UNIT, is_unit};
use crate::ops::{
    Positions, TimeBucketFn, TimeBuckets, add_positional_embeddings, add_timestamp_positional_embeddings,
};
use rewire_graph::{Scope, Tensor};
use serde::Deserialize;

/// Scales rows and adds learned position embeddings, and optionally time embeddings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HstuPositionalEncoder {
    /// Rows of the position table.
    pub num_position_buckets: usize,
    /// Rows of the time table minus 1.
    #[serde(default)]
    pub num_time_buckets: usize,
    /// Width of rows.
    pub embedding_dim: usize,
    /// Length of the contextual prefix.
    #[serde(default)]
    pub contextual_seq_len: usize,
    /// Whether to use a time table.
    #[serde(default)]
    pub use_time_encoding: bool,
    /// Maps time gaps to buckets.
    #[serde(default = "time_bucket_fn")]
    pub time_bucket_fn: TimeBucketFn,
    /// Unit of time gaps.
    #[serde(default = "time_bucket_increments")]
    pub time_bucket_increments: f64,
}

pub(super) fn time_bucket_fn() -> TimeBucketFn {
    TimeBucketFn::Sqrt
}

pub(super) fn time_bucket_increments() -> f64 {
    60.0
}

impl HstuPositionalEncoder {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        rows("num_position_buckets", self.num_position_buckets)?;
        count("num_time_buckets", self.num_time_buckets)?;
        count("contextual_seq_len", self.contextual_seq_len)?;
        width("embedding_dim", self.embedding_dim)?;
        let increments = self.time_bucket_increments;
        if self.use_time_encoding && !is_unit(increments) {
            return Err(ConfigError::new("time_bucket_increments", UNIT, increments));
        }
        Ok(())
    }

    /// Encodes rows `x` `[L, E]` by their `positions` and `timestamps` `[L]`. `query_time` `[B]` is the time of the request.
    pub fn forward(
        &self,
        scope: &Scope,
        x: &Tensor,
        positions: &Positions,
        timestamps: &Tensor,
        query_time: Option<&Tensor>,
    ) -> Tensor {
        let width = self.embedding_dim.into();
        let alpha = (self.embedding_dim as f64).sqrt();
        let table = scope.weight("_position_embeddings_weight", &[self.num_position_buckets.into(), width]);
        if !self.use_time_encoding {
            return add_positional_embeddings(x, &table, alpha, positions);
        }
        let shape = [(self.num_time_buckets + 1).into(), self.embedding_dim.into()];
        let times = scope.weight("_timestamp_embeddings_weight", &shape);
        let time = TimeBuckets {
            timestamps,
            query_time,
            bucket_fn: self.time_bucket_fn,
            increments: self.time_bucket_increments,
        };
        let tables = [&table, &times];
        add_timestamp_positional_embeddings(scope, x, tables, alpha, positions, self.contextual_seq_len, &time)
    }
}
