use super::Builder;
use super::pool::{Rows, is_device};
use crate::noise::Noise;
use crate::program::Instruction;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, HostTensor, Ragged, Tensor};
use rewire_hstu::ops::{
    Attention, Positions, SeqLen, StandardMask, TimeBucketFn, TimeBuckets, add_timestamp_positional_embeddings,
    delta_hstu_mha, hstu_mha,
};

impl Builder {
    /// Softmax attention from plain operators, between the rows of one matrix or of a batch of matrices.
    pub(super) fn softmax_attention(&mut self, i: Instruction) -> Option<Tensor> {
        let fits = |x: &Tensor| (2..=3).contains(&x.rank()) && (4..=140).contains(&x.width()) && is_device(x);
        let x = self.pool.float(i.a, |x| fits(x) && matrices(x).is_some())?;
        let q = matrices(&x)?;
        let k = matrices(&self.pool.float(i.b, |k| k.shape() == x.shape())?)?;
        let (n, width) = (q.ty().extent(1)?, q.width());
        let v = if i.b.is_multiple_of(2) { k.clone() } else { q.tanh() };
        let scores = &q.matmul(&k.transpose(1, 2)) * (1.0 / (width as f64).sqrt());
        let scores = scores.clamp(Some(-30.0), Some(30.0));
        let scores = match i.c % 4 {
            0 => scores,
            1 => &scores + &self.parameter("score_bias", &[n, n], 1.0),
            2 => {
                let keep = self.parameter("keep", &[n, n], 1.0).gt(&self.scope.scalar(DType::F32, -0.31));
                keep.select(&scores, &self.scope.scalar(DType::F32, -1e4))
            }
            _ => scores.silu(),
        };
        Some(scores.softmax(2).matmul(&v))
    }

    /// Softmax over the keys of a sample.
    pub(super) fn jagged_softmax_attention(&mut self, i: Instruction) -> Option<Tensor> {
        let ([q, k, v], rows) = self.qkv(i)?;
        let heads = q.ty().extent(1)?;
        let mask = self.standard_mask(i, &rows, None);
        let (row, key) = (rows.ragged.row_index(&rows.ragged, heads), rows.ragged.key_index(&rows.ragged, heads));
        let number = |n: usize| self.scope.scalar(DType::I32, n as f64);
        let keep = match i.c % 4 {
            0 => None,
            1 => Some(row.ge(&key)),
            2 => Some(row.gt(&key)),
            _ => Some((&row - &key).abs().le(&number(mask.max_attn_len))),
        };
        let scores = &q.scores(&k, &rows.ragged, &rows.ragged) * (1.0 / (q.width() as f64).sqrt());
        let weights = scores.clamp(Some(-30.0), Some(30.0)).softmax_scores(keep.as_ref(), &rows.ragged, &rows.ragged);
        Some(columns(&weights.weighted_sum(&v, &rows.ragged, &rows.ragged)))
    }

    /// HSTU attention of all rows or of the last rows of every sample.
    pub(super) fn hstu_attention(&mut self, i: Instruction) -> Option<Tensor> {
        let ([q, k, v], keys) = self.qkv(i)?;
        let targets = (i.c & 4 == 0).then(|| self.targets(&keys));
        let mask = self.standard_mask(i, &keys, targets);
        let longest = keys.lengths.iter().copied().max().unwrap_or(0) as usize;
        let divisor = match i.a % 3 {
            0 => SeqLen::Host(&keys.ragged.max() + 1.0),
            1 => SeqLen::Fixed(longest + 3),
            _ => SeqLen::Fixed(1 + usize::from(i.b) % 50),
        };
        let attention = Attention { alpha: f64::from(i.b) / 200.0 - 0.3, divisor };
        let trace = |pairs: &_| mask.trace(pairs);
        let attended = if i.c & 8 == 0 {
            let count = f64::from(i.a % 5);
            let rows = Ragged::from_lengths(&keys.ragged.lengths.binary_scalar(BinaryOp::Min, count));
            let last = q.jagged_tail(&keys.ragged, &rows);
            delta_hstu_mha(&self.scope, [&last, &k, &v], &rows, &keys.ragged, &attention, trace)
        } else {
            hstu_mha(&self.scope, [&q, &k, &v], &keys.ragged, &attention, trace)
        };
        Some(columns(&attended))
    }

    /// Position and time of every row, as rows of two tables.
    pub(super) fn timestamps(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.pool.float(i.a, |x| x.rank() == 2 && x.width() > 0 && self.pool.rows_of(x).is_some())?;
        let rows = self.pool.rows_of(&x)?;
        let per_row = |t: &Tensor| t.dtype() == DType::I64 && t.rank() == 1 && t.dim(0) == x.dim(0);
        let timestamps = self.pool.integer(i.b, per_row)?;
        let now = self.pool.integer(i.b, |t| t.dtype() == DType::I64 && t.rank() == 1 && t.dim(0) == self.batch);
        let targets = (i.c & 4 == 0).then(|| self.targets(&rows));
        let positions = Positions {
            rows: &rows.ragged,
            seq_lengths: &rows.ragged.lengths,
            num_targets: targets.as_ref(),
            interleave_targets: false,
            first: None,
        };
        let time = TimeBuckets {
            timestamps: &timestamps,
            query_time: now.as_ref().filter(|_| i.c & 8 == 0),
            bucket_fn: if i.c & 16 == 0 { TimeBucketFn::Sqrt } else { TimeBucketFn::Log },
            increments: [1.0, 60.0, 3.7, 86_400.0][usize::from(i.b) % 4],
        };
        let [position_table, time_table] = [("positions", 5), ("times", 1 + usize::from(i.c) % 90)]
            .map(|(name, count)| self.parameter(name, &[count + 1, x.width()], 1.0));
        let context = usize::from(i.c) / 32 % 3;
        let tables = [&position_table, &time_table];
        Some(add_timestamp_positional_embeddings(&self.scope, &x, tables, 0.7, &positions, context, &time))
    }

    /// Queries, keys and values of the same rows, as heads.
    fn qkv(&self, i: Instruction) -> Option<([Tensor; 3], Rows)> {
        let fits = |x: &Tensor| x.rank() == 2 && (1..=140).contains(&x.width()) && self.pool.rows_of(x).is_some();
        let q = self.pool.float(i.a, fits)?;
        let k = self.pool.float(i.b, |x| x.shape() == q.shape())?;
        let v = self.pool.float(i.c, |x| fits(x) && x.dim(0) == q.dim(0))?;
        let heads = [4, 3, 2, 1].into_iter().find(|n| q.width().is_multiple_of(*n) && v.width().is_multiple_of(*n))?;
        let rows = self.pool.rows_of(&q)?;
        let split = |x: &Tensor| x.reshape(&[x.dim(0), heads.into(), (x.width() / heads).into()]);
        Some(([split(&q), split(&k), split(&v)], rows))
    }

    /// The number of targets at the end of every sample: none, some or all rows.
    fn targets(&mut self, rows: &Rows) -> Tensor {
        let name = format!("targets{}", self.count);
        let mut noise = Noise::new(self.seed, &name);
        let counts: Vec<i64> = rows.lengths.iter().map(|length| noise.below(0, length + 1)).collect();
        self.inputs.insert(name.clone(), HostTensor::lengths(&counts));
        self.scope.host_input(&name, std::slice::from_ref(&self.batch))
    }

    fn standard_mask(&self, i: Instruction, rows: &Rows, num_targets: Option<Tensor>) -> StandardMask {
        // A prefix is at most as long as the shortest sample.
        let shortest = rows.lengths.iter().copied().min().unwrap_or(0) as usize;
        let context = if num_targets.is_some() { 0 } else { shortest.min(usize::from(i.c) / 16 % 4) };
        StandardMask {
            causal: i.c % 4 != 3,
            num_targets,
            max_attn_len: [0, 1, 3, 20][usize::from(i.b) % 4],
            contextual_seq_len: context,
            min_full_attn_seq_len: [0, 2, 9][usize::from(i.b) / 4 % 3],
        }
    }
}

/// All heads, concatenated.
fn columns(x: &Tensor) -> Tensor {
    x.reshape(&[x.dim(0), (x.ty().extent(1).unwrap_or(1) * x.width()).into()])
}

/// The rows of a matrix as matrices themselves, or a batch of matrices as it is.
fn matrices(x: &Tensor) -> Option<Tensor> {
    if x.rank() == 3 {
        return x.ty().extent(1).map(|_| x.clone());
    }
    let rows = [5, 3, 2].into_iter().find(|rows| x.width().is_multiple_of(*rows))?;
    Some(x.reshape(&[x.dim(0), rows.into(), (x.width() / rows).into()]))
}
