use super::array::Array;
use crate::op::{Reduce, ReduceOp, ScoreKind, ScoreReduce, SegmentReduce, WeightedSum};
use std::ops::Range;

fn combined(op: ReduceOp, elements: impl Iterator<Item = f64>) -> f64 {
    elements.fold(op.start().into(), |all, element| op.combine().evaluate(all, element))
}

pub(super) fn reduce(op: &Reduce, operands: &[&Array], shape: Vec<usize>) -> Array {
    let x = operands[0];
    let extent = x.shape[op.axis];
    let inner: usize = x.shape[op.axis + 1..].iter().product();
    let outer: usize = x.shape[..op.axis].iter().product();
    let mut values = Vec::with_capacity(outer * inner);
    for o in 0..outer {
        for i in 0..inner {
            values.push(combined(op.op, (0..extent).map(|n| x.float((o * extent + n) * inner + i))));
        }
    }
    Array::from_floats(shape, values)
}

pub(super) fn segment_reduce(op: &SegmentReduce, operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let x = operands[0];
    let inner: usize = shape[1..].iter().product();
    let mut values = Vec::with_capacity(shape.iter().product());
    for rows in samples(operands[1], x.shape[0])? {
        values.extend((0..inner).map(|i| combined(op.op, rows.clone().map(|row| x.float(row * inner + i)))));
    }
    Ok(Array::from_floats(shape, values))
}

pub(super) fn index_add(operands: &[&Array], shape: Vec<usize>) -> Array {
    let (values, index) = (operands[0], operands[1]);
    let inner: usize = shape[1..].iter().product();
    let mut sums = vec![0.0; shape.iter().product()];
    let Some(last) = shape[0].checked_sub(1) else { return Array::from_floats(shape, sums) };
    for (from, row) in index.integers().into_iter().enumerate() {
        let row = row.clamp(0, last as i64) as usize;
        for i in 0..inner {
            sums[row * inner + i] += values.float(from * inner + i);
        }
    }
    Array::from_floats(shape, sums)
}

/// The flat start of a matrix in an operand whose leading axes are broadcast to those of the result.
fn matrix(operand: &Array, batch: &[usize]) -> usize {
    let rank = operand.shape.len();
    let leading = &operand.shape[..rank - 2];
    let skipped = batch.len() - leading.len();
    let flat = leading
        .iter()
        .zip(&batch[skipped..])
        .fold(0, |flat, (&extent, &i)| flat * extent + if extent == 1 { 0 } else { i });
    flat * operand.shape[rank - 2] * operand.shape[rank - 1]
}

pub(super) fn matmul(operands: &[&Array], shape: Vec<usize>) -> Array {
    let (a, b) = (operands[0], operands[1]);
    let (leading, tail) = shape.split_at(shape.len() - 2);
    let (m, n, k) = (tail[0], tail[1], a.shape[a.shape.len() - 1]);
    let mut values = Vec::with_capacity(shape.iter().product());
    for flat in 0..leading.iter().product() {
        let mut batch = vec![0; leading.len()];
        let mut rest: usize = flat;
        for (coord, &extent) in batch.iter_mut().zip(leading).rev() {
            (*coord, rest) = (rest % extent, rest / extent);
        }
        let (a0, b0) = (matrix(a, &batch), matrix(b, &batch));
        for i in 0..m {
            for j in 0..n {
                values.push((0..k).map(|x| a.float(a0 + i * k + x) * b.float(b0 + x * n + j)).sum());
            }
        }
    }
    Array::from_floats(shape, values)
}

/// The rows of every sample, by offsets into `total` rows.
fn samples(offsets: &Array, total: usize) -> Result<Vec<Range<usize>>, String> {
    let offsets = offsets.integers();
    let range = |pair: &[i64]| match pair {
        &[start, end] if start >= 0 && end >= start && end as usize <= total => Ok(start as usize..end as usize),
        _ => Err(format!("offsets must ascend within {total} rows, got {pair:?}")),
    };
    offsets.windows(2).map(range).collect()
}

pub(super) fn jagged_matmul(operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let (x, dense) = (operands[0], operands[1]);
    let (k, n) = (dense.shape[1], dense.shape[2]);
    let mut values = vec![0.0; shape.iter().product()];
    for (sample, rows) in samples(operands[2], shape[0])?.into_iter().enumerate() {
        for row in rows {
            for j in 0..n {
                values[row * n + j] =
                    (0..k).map(|c| x.float(row * k + c) * dense.float((sample * k + c) * n + j)).sum();
            }
        }
    }
    Ok(Array::from_floats(shape, values))
}

pub(super) fn scores(operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let (q, k) = (operands[0], operands[1]);
    let (rows, keys) = (samples(operands[2], q.shape[0])?, samples(operands[3], k.shape[0])?);
    let (heads, width) = (q.shape[1], q.shape[2]);
    let mut values = vec![0.0; shape.iter().product()];
    for (b, (rows, keys)) in rows.into_iter().zip(keys).enumerate() {
        for h in 0..heads {
            for (i, row) in rows.clone().enumerate() {
                for (j, key) in keys.clone().enumerate() {
                    let (query, key) = ((row * heads + h) * width, (key * heads + h) * width);
                    values[((b * heads + h) * shape[2] + i) * shape[3] + j] =
                        (0..width).map(|d| q.float(query + d) * k.float(key + d)).sum();
                }
            }
        }
    }
    Ok(Array::from_floats(shape, values))
}

pub(super) fn jagged_jagged_matmul(operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let (x, y) = (operands[0], operands[1]);
    let (k, n) = (shape[1], shape[2]);
    let mut values = Vec::with_capacity(shape.iter().product());
    for rows in samples(operands[2], x.shape[0])? {
        let product = |i: usize, j: usize| rows.clone().map(move |row| x.float(row * k + i) * y.float(row * n + j));
        values.extend((0..k * n).map(|at| combined(ReduceOp::Sum, product(at / n, at % n))));
    }
    Ok(Array::from_floats(shape, values))
}

pub(super) fn weighted_sum(op: &WeightedSum, operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let (weights, v) = (operands[0], operands[1]);
    let by_key = op.kind == ScoreKind::Key;
    let [counted, summed] = if by_key { [3, 2] } else { [2, 3] };
    let (targets, sources) = (samples(operands[counted], shape[0])?, samples(operands[summed], v.shape[0])?);
    let (heads, width, keys) = (v.shape[1], v.shape[2], weights.shape[3]);
    let mut values = vec![0.0; shape.iter().product()];
    for (b, (targets, sources)) in targets.into_iter().zip(sources).enumerate() {
        for h in 0..heads {
            let first = (b * heads + h) * weights.shape[2] * keys;
            for (t, target) in targets.clone().enumerate() {
                for d in 0..width {
                    let weighted = |(s, source): (usize, usize)| {
                        let (row, key) = if by_key { (s, t) } else { (t, s) };
                        weights.float(first + row * keys + key) * v.float((source * heads + h) * width + d)
                    };
                    values[(target * heads + h) * width + d] = sources.clone().enumerate().map(weighted).sum();
                }
            }
        }
    }
    Ok(Array::from_floats(shape, values))
}

pub(super) fn score_reduce(op: &ScoreReduce, operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let scores = operands[0];
    let (heads, count) = (shape[0], shape[1]);
    let total = |kind| if op.kind == kind { count } else { usize::MAX };
    let rows = samples(operands[1], total(ScoreKind::Row))?;
    let keys = samples(operands[2], total(ScoreKind::Key))?;
    let mut values = vec![f64::from(op.op.start()); heads * count];
    for (b, (rows, keys)) in rows.into_iter().zip(keys).enumerate() {
        for h in 0..heads {
            for (i, row) in rows.clone().enumerate() {
                for (j, key) in keys.clone().enumerate() {
                    let place = match op.kind {
                        ScoreKind::Sample => b,
                        ScoreKind::Row => row,
                        ScoreKind::Key => key,
                    };
                    let score = scores.float(((b * heads + h) * scores.shape[2] + i) * scores.shape[3] + j);
                    let value = &mut values[h * count + place];
                    *value = op.op.combine().evaluate(*value, score);
                }
            }
        }
    }
    Ok(Array::from_floats(shape, values))
}

pub(super) fn score_softmax(operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let (scores, keep) = (operands[0], operands[1]);
    let counts: Vec<usize> =
        operands[3].integers().windows(2).map(|pair| (pair[1] - pair[0]).max(0) as usize).collect();
    let per_sample = shape[1] * shape[2];
    let mut values = vec![0.0; shape.iter().product()];
    for (row, weights) in values.chunks_mut(shape[3].max(1)).enumerate() {
        let first = row * shape[3];
        let keys = counts.get(row / per_sample.max(1)).copied().unwrap_or(0).min(shape[3]);
        let counts = |key: &usize| keep.integer(if keep.shape.is_empty() { 0 } else { first + key }) != 0;
        let kept: Vec<usize> = (0..keys).filter(counts).collect();
        let largest = kept.iter().fold(f64::NEG_INFINITY, |most, key| most.max(scores.float(first + key)));
        let total: f64 = kept.iter().map(|key| (scores.float(first + key) - largest).exp()).sum();
        for key in kept {
            weights[key] = (scores.float(first + key) - largest).exp() / total;
        }
    }
    Ok(Array::from_floats(shape, values))
}
