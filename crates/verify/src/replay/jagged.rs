use super::tracer::{CaseTracer, out};
use super::{Outputs, ReplayError};
use rewire_graph::{Dim, Ragged, Tensor};
use rewire_hstu::ops::{self, Positions, TimeBucketFn, TimeBuckets};
use serde::Deserialize;

#[derive(Deserialize)]
struct Truncation {
    max_seq_len: usize,
    truncate_tail_len: usize,
    #[serde(default)]
    contextual_seq_len: usize,
}

pub(super) fn stu_truncation(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let attrs: Truncation = case.attributes()?;
    let rows = case.offsets("x_offsets")?;
    let x = case.input("x", std::slice::from_ref(&rows.total))?;
    let num_targets = case.num_targets(&rows)?;
    let context = attrs.contextual_seq_len;
    let scope = &case.scope;
    let plan = ops::stu_truncation(scope, &rows, num_targets.as_ref(), context, attrs.truncate_tail_len);
    let dropped = Ragged::from_lengths(&plan.dropped);
    let prefix_total = plan.prefix.as_ref().map_or(0.into(), |prefix| prefix.total.clone());
    let rest_total = if context > 0 { rows.total.clone() - prefix_total.clone() } else { 0.into() };
    let size = |dim: Dim| scope.host_size(dim);
    let mut named = vec![
        ("x", plan.apply(&x)),
        ("new_lengths", plan.kept.lengths.clone()),
        ("new_x_offsets", plan.kept.offsets.clone()),
        ("new_max_seq_len", plan.kept.max()),
        ("pre_max_seq_len", size(attrs.max_seq_len.into())),
        ("contextual_seq_len", size(context.into())),
        ("offsets_head", dropped.offsets.clone()),
        ("offsets_tail", plan.tail.offsets.clone()),
        ("total_dropped", size(dropped.total)),
        ("total_kept", size(plan.tail.total.clone())),
        ("total_prefix", size(prefix_total)),
        ("total_rest", size(rest_total)),
    ];
    if let Some(prefix) = &plan.prefix {
        named.push(("offsets_prefix", prefix.offsets.clone()));
        named.push(("offsets_rest", &rows.offsets - &prefix.offsets));
    }
    Ok(named.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect())
}

#[derive(Deserialize)]
struct Sides {
    #[serde(default)]
    max_len_left: Option<usize>,
    #[serde(default)]
    max_len_right: Option<usize>,
}

impl Sides {
    /// The ragged rows of both sides. A side without offsets has its maximum length in every sample.
    fn rows(&self, case: &CaseTracer) -> Result<[Ragged; 2], ReplayError> {
        let left = case.optional("offsets_left", |name| case.offsets(name))?;
        let right = case.optional("offsets_right", |name| case.offsets(name))?;
        let dense = |batch: Dim, len: Option<usize>, name: &str| match len {
            Some(len) => Ok(Ragged::dense(&case.scope, batch, &case.scope.host_size(len))),
            None => Err(ReplayError::Missing { name: format!("in.{name}") }),
        };
        match (left, right) {
            (Some(left), Some(right)) => Ok([left, right]),
            (Some(left), None) => {
                let right = dense(left.batch.clone(), self.max_len_right, "offsets_right")?;
                Ok([left, right])
            }
            (None, Some(right)) => {
                let left = dense(right.batch.clone(), self.max_len_left, "offsets_left")?;
                Ok([left, right])
            }
            (None, None) => {
                let batch: Dim = match (self.max_len_left, self.max_len_right) {
                    (Some(len), _) if len > 0 => (case.extent("values_left", 0)? / len).into(),
                    (_, Some(len)) if len > 0 => (case.extent("values_right", 0)? / len).into(),
                    _ => 0.into(),
                };
                let left = dense(batch.clone(), self.max_len_left, "offsets_left")?;
                Ok([left, dense(batch, self.max_len_right, "offsets_right")?])
            }
        }
    }
}

pub(super) fn concat(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let [left, right] = case.attributes::<Sides>()?.rows(case)?;
    let a = case.input("values_left", std::slice::from_ref(&left.total))?;
    let b = case.input("values_right", std::slice::from_ref(&right.total))?;
    Ok(out(ops::concat_2d_jagged(&a, &left, &b, &right).0))
}

pub(super) fn split(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let [left, right] = case.attributes::<Sides>()?.rows(case)?;
    let values = case.input("values", &[left.total.clone() + right.total.clone()])?;
    let (a, b) = ops::split_2d_jagged(&values, &left, &right);
    Ok(vec![("left".to_owned(), a), ("right".to_owned(), b)])
}

pub(super) fn bmm(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let rows = case.offsets("seq_offsets")?;
    let jagged = case.input("jagged", std::slice::from_ref(&rows.total))?;
    let dense = case.input("dense", std::slice::from_ref(&rows.batch))?;
    let bias = case.input("bias", std::slice::from_ref(&rows.batch))?;
    Ok(out(ops::jagged_dense_bmm_broadcast_add(&jagged, &rows, &dense, &bias)))
}

#[derive(Deserialize)]
struct Position {
    alpha: f64,
    #[serde(default)]
    interleave_targets: bool,
}

#[derive(Deserialize)]
struct TimestampPosition {
    #[serde(default)]
    max_contextual_seq_len: usize,
    time_bucket_fn: TimeBucketFn,
    time_bucket_increments: f64,
}

/// Rows, and the tensors that define their positions.
struct Placed {
    x: Tensor,
    rows: Ragged,
    seq_lengths: Tensor,
    num_targets: Option<Tensor>,
    table: Tensor,
}

impl Placed {
    fn new(case: &CaseTracer) -> Result<Self, ReplayError> {
        let rows = case.offsets("seq_offsets")?;
        Ok(Self {
            x: case.input("seq_embeddings", std::slice::from_ref(&rows.total))?,
            seq_lengths: case.counts("seq_lengths", &rows)?,
            num_targets: case.num_targets(&rows)?,
            table: case.input("position_embeddings_weight", &[])?,
            rows,
        })
    }

    fn positions(&self, interleave_targets: bool) -> Positions<'_> {
        Positions {
            rows: &self.rows,
            seq_lengths: &self.seq_lengths,
            num_targets: self.num_targets.as_ref(),
            interleave_targets,
            first: None,
        }
    }
}

pub(super) fn positions(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let attrs: Position = case.attributes()?;
    let placed = Placed::new(case)?;
    let positions = placed.positions(attrs.interleave_targets);
    Ok(out(ops::add_positional_embeddings(&placed.x, &placed.table, attrs.alpha, &positions)))
}

pub(super) fn timestamp_positions(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let (attrs, time): (Position, TimestampPosition) = (case.attributes()?, case.attributes()?);
    let placed = Placed::new(case)?;
    let times = case.input("timestamp_embeddings_weight", &[])?;
    let timestamps = case.column("timestamps", &placed.rows.total)?;
    let query_time = case.optional("query_time", |name| case.column(name, &placed.rows.batch))?;
    let buckets = TimeBuckets {
        timestamps: &timestamps,
        query_time: query_time.as_ref(),
        bucket_fn: time.time_bucket_fn,
        increments: time.time_bucket_increments,
    };
    Ok(out(ops::add_timestamp_positional_embeddings(
        &case.scope,
        &placed.x,
        [&placed.table, &times],
        attrs.alpha,
        &placed.positions(attrs.interleave_targets),
        time.max_contextual_seq_len,
        &buckets,
    )))
}
