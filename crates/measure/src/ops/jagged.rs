use crate::draft::{Draft, DraftError, Rows};
use rewire_graph::Tensor;
use rewire_hstu::ops::{
    Positions, TimeBucketFn, TimeBuckets, add_timestamp_positional_embeddings, concat_2d_jagged, split_2d_jagged,
};

/// Rows of the time table.
const TIME_BUCKETS: usize = 2049;

/// History and target rows of every sample. If the shape has no targets, half of the rows are targets.
fn parts(draft: &mut Draft<'_>) -> Result<(Rows, Rows), DraftError> {
    let lengths = draft.lengths()?;
    let right: Vec<i64> = match draft.shape.targets {
        crate::Lengths::NONE => lengths.iter().map(|length| length / 2).collect(),
        _ => draft.targets(&lengths, 0),
    };
    let left = lengths.iter().zip(&right).map(|(length, right)| length - right).collect();
    let left = draft.samples("left_lengths", left);
    let right = draft.more_samples("right_lengths", &left.ragged.batch, right);
    Ok((left, right))
}

pub(super) fn concat(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let (left_rows, right_rows) = parts(draft)?;
    let left = draft.rows_of("left", &left_rows, &[draft.shape.width])?;
    let right = draft.rows_of("right", &right_rows, &[draft.shape.width])?;
    let (out, _) = concat_2d_jagged(&left, &left_rows.ragged, &right, &right_rows.ragged);
    Ok(vec![("out", draft.stored(&out))])
}

pub(super) fn split(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let (left, right) = parts(draft)?;
    let both = Rows {
        ragged: left.ragged.plus(&right.ragged),
        lengths: left.lengths.iter().zip(&right.lengths).map(|(left, right)| left + right).collect(),
    };
    let values = draft.rows_of("values", &both, &[draft.shape.width])?;
    let (left, right) = split_2d_jagged(&values, &left.ragged, &right.ragged);
    Ok(vec![("left", draft.stored(&left)), ("right", draft.stored(&right))])
}

pub(super) fn positions(draft: &mut Draft<'_>) -> Result<Vec<(&'static str, Tensor)>, DraftError> {
    let lengths = draft.lengths()?;
    let rows = draft.samples("lengths", lengths);
    let width = draft.shape.width;
    let x = draft.rows_of("x", &rows, &[width])?;
    let timestamps = draft.timestamps("timestamps", &rows)?;
    let num_targets = draft.num_targets(&rows);
    let tables =
        [&draft.weight("positions", &[draft.shape.max_len, width]), &draft.weight("times", &[TIME_BUCKETS, width])];
    let positions = Positions {
        rows: &rows.ragged,
        seq_lengths: &rows.ragged.lengths,
        num_targets: num_targets.as_ref(),
        interleave_targets: false,
        first: None,
    };
    let time =
        TimeBuckets { timestamps: &timestamps, query_time: None, bucket_fn: TimeBucketFn::Sqrt, increments: 60.0 };
    let alpha = (width as f64).sqrt();
    let out = add_timestamp_positional_embeddings(&draft.scope, &x, tables, alpha, &positions, 0, &time);
    Ok(vec![("out", draft.stored(&out))])
}
