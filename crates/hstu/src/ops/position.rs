use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Ragged, Scope, Tensor};
use serde::Deserialize;

/// What positions of rows are counted from.
#[derive(Clone, Debug)]
pub struct Positions<'a> {
    /// The rows.
    pub rows: &'a Ragged,
    /// Lengths `[B]` on the host.
    pub seq_lengths: &'a Tensor,
    /// Number of targets `[B]` on the host.
    pub num_targets: Option<&'a Tensor>,
    /// Every target takes two rows.
    pub interleave_targets: bool,
}

/// How a time gap, counted in `time_bucket_increments`, becomes a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeBucketFn {
    /// Square root.
    Sqrt,
    /// Natural logarithm.
    Log,
}

/// Gaps between the time of a request and the time of a row.
#[derive(Clone, Debug)]
pub struct TimeBuckets<'a> {
    /// Time of every row `[total]`, `I64` or `F32`.
    pub timestamps: &'a Tensor,
    /// Time of the request, `[B]` or `[B, 1]`; the last timestamp of the sample where there is none.
    pub query_time: Option<&'a Tensor>,
    /// From gaps to buckets.
    pub bucket_fn: TimeBucketFn,
    /// Unit of the gaps.
    pub increments: f64,
}

impl Positions<'_> {
    /// Number of rows before the targets, `[B]` on the host.
    fn history(&self) -> Tensor {
        match self.num_targets {
            Some(targets) if self.interleave_targets => self.seq_lengths - &(targets * 2.0),
            Some(targets) => self.seq_lengths - targets,
            None => self.seq_lengths.clone(),
        }
    }
}

/// `alpha x_i + table[min(i, history, P - 1)]` with `table` `[P, D]`; all targets share a row.
pub fn add_positional_embeddings(x: &Tensor, table: &Tensor, alpha: f64, positions: &Positions) -> Tensor {
    let last = table.ty().extent(0).unwrap_or(1).saturating_sub(1);
    let highest = positions.history().binary_scalar(BinaryOp::Min, last as f64);
    let index = positions.rows.position().minimum(&highest.jagged_broadcast(positions.rows));
    &(x * alpha) + &table.gather(&index)
}

/// `alpha x_i + position_table[p(i)] + time_table[k(i)]`: positions count back from the end of the history, past
/// a contextual prefix of `max_contextual_seq_len` rows; time buckets count back from the request.
pub fn add_timestamp_positional_embeddings(
    x: &Tensor,
    [position_table, time_table]: [&Tensor; 2],
    alpha: f64,
    positions: &Positions,
    max_contextual_seq_len: usize,
    time: &TimeBuckets,
) -> Tensor {
    let position = backward_position(positions, position_table, max_contextual_seq_len);
    let bucket = time_bucket(positions.rows, time, time_table.ty().extent(0).unwrap_or(1).saturating_sub(1));
    &(&(x * alpha) + &position_table.gather(&position)) + &time_table.gather(&bucket)
}

fn backward_position(positions: &Positions, table: &Tensor, context: usize) -> Tensor {
    let last = table.ty().extent(0).unwrap_or(1).saturating_sub(1);
    let row = positions.rows.position();
    let history = positions.history().jagged_broadcast(positions.rows);
    let before = if positions.num_targets.is_some() { row.minimum(&history) } else { row.clone() };
    let back = (&(&history - &before) + context as f64).clamp(None, Some(last as f64));
    match context {
        0 => back,
        _ => row.binary_scalar(BinaryOp::Lt, context as f64).select(&row, &back),
    }
}

fn time_bucket(rows: &Ragged, time: &TimeBuckets, buckets: usize) -> Tensor {
    let timestamps = time.timestamps;
    let query = match time.query_time {
        Some(query) => query.cast(timestamps.dtype()).reshape(std::slice::from_ref(&rows.batch)).jagged_broadcast(rows),
        None => timestamps.gather(&(&rows.sample_end() - 1.0)),
    };
    let gap = (&query - timestamps).cast(DType::F32).clamp(Some(1e-6), None);
    let units = &gap / time.increments;
    let z = match time.bucket_fn {
        TimeBucketFn::Sqrt => units.sqrt(),
        TimeBucketFn::Log => units.log(),
    };
    let share = (&z / buckets.max(1) as f64).clamp(Some(0.0), Some(1.0));
    (&share * buckets as f64).trunc().cast(DType::I32)
}

/// Contextual rows as a prefix: `C` rows a sample.
pub(crate) fn prefix_rows(scope: &Scope, rows: &Ragged, context: usize) -> Ragged {
    Ragged::dense(scope, rows.batch.clone(), &scope.host_size(context))
}
