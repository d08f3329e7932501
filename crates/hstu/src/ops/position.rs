use crate::number::{F32, UNIT, is_f32, is_unit};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Ragged, Scope, Tensor, TypeError};
use serde::Deserialize;

/// Lengths of samples and numbers of targets, from which row positions are computed.
#[derive(Clone, Debug)]
pub struct Positions<'a> {
    /// The rows.
    pub rows: &'a Ragged,
    /// Lengths `[B]` on the host, at most the number of rows of each sample.
    pub seq_lengths: &'a Tensor,
    /// Number of targets `[B]` on the host.
    pub num_targets: Option<&'a Tensor>,
    /// Whether every target has two rows.
    pub interleave_targets: bool,
    /// Position of the first row of every sample, `[B]` on the host, if the input lacks earlier rows. `seq_lengths` include the missing
    /// rows.
    pub first: Option<&'a Tensor>,
}

/// Maps a time gap, in units of `time_bucket_increments`, to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeBucketFn {
    /// Square root.
    Sqrt,
    /// Natural logarithm.
    Log,
}

/// Time gaps between requests and rows, and their mapping to buckets.
#[derive(Clone, Debug)]
pub struct TimeBuckets<'a> {
    /// Timestamp of every row `[total]`, integers or floats.
    pub timestamps: &'a Tensor,
    /// Time of the request, `[B]` or `[B, 1]`; defaults to the last timestamp of the sample.
    pub query_time: Option<&'a Tensor>,
    /// Maps gaps to buckets.
    pub bucket_fn: TimeBucketFn,
    /// Unit of the gaps.
    pub increments: f64,
}

impl Positions<'_> {
    /// Number of rows before the targets, `[B]` on the host.
    fn history(&self) -> Tensor {
        let all = self.first.map_or_else(|| self.rows.lengths.clone(), |first| &self.rows.lengths + first);
        let lengths = self.seq_lengths.at_most(&all, "seq_lengths");
        match self.num_targets {
            Some(targets) if self.interleave_targets => &lengths - &(targets * 2.0).at_most(&lengths, "num_targets"),
            Some(targets) => &lengths - targets.at_most(&lengths, "num_targets"),
            None => lengths,
        }
    }

    /// The position of every row in its sample.
    fn position(&self) -> Tensor {
        let here = self.rows.position();
        self.first.map_or_else(|| here.clone(), |first| &here + first.jagged_broadcast(self.rows))
    }
}

/// `alpha x_i + table[min(i, history, P - 1)]` with `table` `[P, D]`. All targets share one position.
pub fn add_positional_embeddings(x: &Tensor, table: &Tensor, alpha: f64, positions: &Positions) -> Tensor {
    require("add_positional_embeddings", x, alpha, [("table", table)]);
    let last = table.ty().extent(0).unwrap_or(1).saturating_sub(1);
    let highest = positions.history().binary_scalar(BinaryOp::Min, last as f64);
    let index = positions.position().minimum(highest.jagged_broadcast(positions.rows));
    (x * alpha) + table.gather(&index)
}

/// `alpha x_i + position_table[p(i)] + time_table[k(i)]`. Positions `p` count back from the end of the history, after a contextual prefix
/// of `max_contextual_seq_len` rows. Time buckets `k` count back from the request.
pub fn add_timestamp_positional_embeddings(
    scope: &Scope,
    x: &Tensor,
    [position_table, time_table]: [&Tensor; 2],
    alpha: f64,
    positions: &Positions,
    max_contextual_seq_len: usize,
    time: &TimeBuckets,
) -> Tensor {
    let op = "add_timestamp_positional_embeddings";
    require(op, x, alpha, [("position_table", position_table), ("time_table", time_table)]);
    time.require(op, positions.rows);
    let position = backward_position(positions, position_table, max_contextual_seq_len);
    let bucket = time_bucket(scope, positions.rows, time, time_table.ty().extent(0).unwrap_or(1).saturating_sub(1));
    ((x * alpha) + position_table.gather(&position)) + time_table.gather(&bucket)
}

fn require<const N: usize>(op: &str, x: &Tensor, alpha: f64, tables: [(&str, &Tensor); N]) {
    x.require(op, "x", x.rank() == 2, "[L, D]", x.ty());
    x.require(op, "alpha", is_f32(alpha), F32, alpha);
    for (argument, table) in tables {
        let rows = table.rank() == 2 && table.ty().extent(0).is_some_and(|rows| rows > 0);
        let expected = format!("[rows, {}] with at least one row", x.dim(1));
        table.require(op, argument, rows && table.dim(1) == x.dim(1), expected, table.ty());
    }
}

impl TimeBuckets<'_> {
    fn require(&self, op: &str, rows: &Ragged) {
        let times = self.timestamps;
        times.require(op, "timestamps", times.dtype() != DType::Bool, "of integers or floats", times.ty());
        times.require_shape(op, "timestamps", std::slice::from_ref(&rows.total));
        let unit = self.increments;
        times.require(op, "time_bucket_increments", is_unit(unit), UNIT, unit);
    }
}

fn backward_position(positions: &Positions, table: &Tensor, context: usize) -> Tensor {
    let last = table.ty().extent(0).unwrap_or(1).saturating_sub(1);
    let row = positions.position();
    let history = positions.history().jagged_broadcast(positions.rows);
    let before = if positions.num_targets.is_some() { row.minimum(&history) } else { row.clone() };
    let back = ((&history - &before) + context as f64).clamp(None, Some(last as f64));
    match context {
        0 => back,
        _ => row.binary_scalar(BinaryOp::Lt, context as f64).select(&row, &back),
    }
}

/// The bucket of every row: the number of bucket edges `1..=buckets` that its gap has reached.
///
/// The reference computes a bucket in f32 as `int(f(gap) / buckets * buckets)`, which rounding can make one less than `f(gap)`. The edges
/// include this rounding. Square roots and logarithms are rounded differently by every device, so they only yield an estimate, and the gap
/// is compared with the edges on both sides of it.
fn time_bucket(scope: &Scope, rows: &Ragged, time: &TimeBuckets, buckets: usize) -> Tensor {
    let timestamps = &time.timestamps.cast(if time.timestamps.dtype().is_float() { DType::F32 } else { DType::I64 });
    let query = match time.query_time {
        Some(query) => query.cast(timestamps.dtype()).reshape(std::slice::from_ref(&rows.batch)).jagged_broadcast(rows),
        None => timestamps.gather(&(&rows.sample_end() - 1.0)),
    };
    let gap = elapsed(scope, &query, timestamps);
    let units = &gap.cast(DType::F32).clamp(Some(1e-6), None) / time.increments;
    let z = match time.bucket_fn {
        TimeBucketFn::Sqrt => units.sqrt(),
        TimeBucketFn::Log => units.log(),
    };
    let near = z.clamp(Some(0.0), Some(buckets as f64)).trunc().cast(DType::I32);
    let edges = time.bucket_fn.edges(scope, timestamps.dtype(), time.increments, buckets);
    let missed = gap.lt(edges.gather(&near)).cast(DType::I32);
    let reached = gap.ge(edges.gather(&(&near + 1.0))).cast(DType::I32);
    (&near - &missed) + &reached
}

/// `now - times`. If a 64-bit difference overflows, it is the maximum for past times, and negative for future ones.
fn elapsed(scope: &Scope, now: &Tensor, times: &Tensor) -> Tensor {
    let gap = now - times;
    if gap.dtype() != DType::I64 {
        return gap;
    }
    let most = match HostTensor::i64(vec![], &[i64::MAX]) {
        Ok(most) => scope.constant(most),
        Err(error) => return scope.fail("time_bucket", TypeError::new("timestamps", "integers", error)),
    };
    let past = gap.binary_scalar(BinaryOp::Lt, 0.0).select(&most, &gap);
    now.ge(times).select(&past, &gap.binary_scalar(BinaryOp::Min, -1.0))
}

impl TimeBucketFn {
    /// The bucket of a gap, with every step rounded to f32 like the reference.
    fn bucket(self, gap: f32, increments: f32, buckets: usize) -> usize {
        let units = gap.max(1e-6) / increments;
        let z = match self {
            Self::Sqrt => units.sqrt(),
            // Computed in f64 and rounded once, so it does not depend on the processor's f32 logarithm.
            Self::Log => f64::from(units).ln() as f32,
        };
        ((z / buckets as f32).clamp(0.0, 1.0) * buckets as f32) as usize
    }

    /// The smallest gap of every bucket `0..=buckets` in the type of timestamps, followed by a gap that is never reached.
    fn edges(self, scope: &Scope, dtype: DType, increments: f64, buckets: usize) -> Tensor {
        let reaches = |gap: f32, bucket| self.bucket(gap, increments as f32, buckets) >= bucket;
        let inner = 1..=buckets;
        let tensor = if dtype == DType::I64 {
            let inner = inner.map(|bucket| first(i64::MAX as u64, |gap| reaches(gap as f32, bucket)) as i64);
            let all: Vec<i64> = std::iter::once(i64::MIN).chain(inner).chain([i64::MAX]).collect();
            HostTensor::i64(vec![all.len()], &all)
        } else {
            // The bits of positive floats have the same order as the floats.
            let most = u64::from(f32::MAX.to_bits());
            let inner = inner.map(|bucket| first(most, |bits| reaches(f32::from_bits(bits as u32), bucket)));
            let inner = inner.map(|bits| f32::from_bits(bits as u32));
            let all: Vec<f32> = std::iter::once(f32::MIN).chain(inner).chain([f32::MAX]).collect();
            HostTensor::f32(vec![all.len()], &all)
        };
        match tensor {
            Ok(tensor) => scope.constant(tensor),
            Err(error) => scope.fail("time_bucket", TypeError::new("time_table", "a table of fewer rows", error)),
        }
    }
}

/// The smallest number in `0..=most` for which `holds` is true, or `most`. `holds` must be monotonic.
fn first(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The contextual prefix as ragged rows, `context` per sample.
pub(crate) fn prefix_rows(scope: &Scope, rows: &Ragged, context: usize) -> Ragged {
    Ragged::dense(scope, rows.batch.clone(), &scope.host_size(context))
}
