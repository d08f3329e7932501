use super::array::Array;
use crate::op::{Reduce, ReduceOp};
use crate::pointwise::BinaryOp;
use std::ops::Range;

pub(super) fn reduce(op: &Reduce, operands: &[&Array], shape: Vec<usize>) -> Array {
    let x = operands[0];
    let extent = x.shape[op.axis];
    let inner: usize = x.shape[op.axis + 1..].iter().product();
    let outer: usize = x.shape[..op.axis].iter().product();
    let mut values = Vec::with_capacity(outer * inner);
    for o in 0..outer {
        for i in 0..inner {
            let elements = (0..extent).map(|n| x.float((o * extent + n) * inner + i));
            values.push(match op.op {
                ReduceOp::Sum => elements.sum(),
                ReduceOp::Max => elements.fold(op.op.start().into(), |a, b| BinaryOp::Max.evaluate(a, b)),
                ReduceOp::Min => elements.fold(op.op.start().into(), |a, b| BinaryOp::Min.evaluate(a, b)),
            });
        }
    }
    Array::from_floats(shape, values)
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

pub(super) fn weighted_sum(operands: &[&Array], shape: Vec<usize>) -> Result<Array, String> {
    let (weights, v) = (operands[0], operands[1]);
    let (rows, keys) = (samples(operands[2], shape[0])?, samples(operands[3], v.shape[0])?);
    let (heads, width) = (v.shape[1], v.shape[2]);
    let mut values = vec![0.0; shape.iter().product()];
    for (b, (rows, keys)) in rows.into_iter().zip(keys).enumerate() {
        for h in 0..heads {
            for (i, row) in rows.clone().enumerate() {
                let first = ((b * heads + h) * weights.shape[2] + i) * weights.shape[3];
                for d in 0..width {
                    let weighted =
                        |(j, key): (usize, usize)| weights.float(first + j) * v.float((key * heads + h) * width + d);
                    values[(row * heads + h) * width + d] = keys.clone().enumerate().map(weighted).sum();
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
