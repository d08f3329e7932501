use super::{Ragged, Tensor};
use crate::DType;
use crate::op::{
    ReduceOp, ScoreBroadcast, ScoreGather, ScoreIndex, ScoreKind, ScoreReduce, ScoreSoftmax, Scores, WeightedSum,
};

impl Tensor {
    /// Dot products of these queries `[rows, H, A]` with the keys `k` `[keys, H, A]` of their sample: scores
    /// `[samples, H, rows, keys]`, ragged in rows and keys.
    ///
    /// Scores take pointwise operators with scalars and with other scores of the same rows and keys, such as
    /// [`Ragged::row_index`] and [`Ragged::per_sample`]. [`Tensor::weighted_sum`] makes a tensor of them again.
    pub fn scores(&self, k: &Tensor, rows: &Ragged, keys: &Ragged) -> Tensor {
        self.apply(Scores, &[k, &rows.offsets, &keys.offsets])
    }

    /// Values of this table `[V, H]` by a row `index` for every pair of query and key, each from the column of its head.
    pub fn gather_scores(&self, index: &Tensor) -> Tensor {
        self.apply(ScoreGather, &[index])
    }

    /// The softmax of these scores over the keys of each query for which the bool `keep` of the pair is true; over all
    /// keys if `None`. The weights of other keys are 0, and so are all weights of a query without a kept key.
    pub fn softmax_scores(&self, keep: Option<&Tensor>, rows: &Ragged, keys: &Ragged) -> Tensor {
        let all = self.scalar(DType::Bool, 1.0);
        self.apply(ScoreSoftmax, &[keep.unwrap_or(&all), &rows.offsets, &keys.offsets])
    }

    /// For every query the sum of values `v` `[keys, H, V]`, weighted by these scores: `[rows, H, V]`.
    ///
    /// Queries and keys of pairs whose weight a select sets to 0 may hold anything. Their values must be finite:
    /// kernels skip some of these pairs and multiply others by 0, which gives NaN for infinities and NaN.
    pub fn weighted_sum(&self, v: &Tensor, rows: &Ragged, keys: &Ragged) -> Tensor {
        self.apply(WeightedSum { kind: ScoreKind::Row }, &[v, &rows.offsets, &keys.offsets])
    }

    /// For every key the sum of values `v` `[rows, H, V]` of its sample's queries, weighted by these scores:
    /// `[keys, H, V]`. Values must be finite, as in [`Tensor::weighted_sum`].
    pub fn weighted_sum_by_key(&self, v: &Tensor, rows: &Ragged, keys: &Ragged) -> Tensor {
        self.apply(WeightedSum { kind: ScoreKind::Key }, &[v, &rows.offsets, &keys.offsets])
    }

    /// Reduces these scores over the pairs of every sample, query or key: `[H, n]`, the shape that
    /// [`Ragged::per_sample`], [`Ragged::per_row`] and [`Ragged::per_key`] accept.
    pub fn reduce_scores(&self, op: ReduceOp, kind: ScoreKind, rows: &Ragged, keys: &Ragged) -> Tensor {
        self.apply(ScoreReduce { op, kind }, &[&rows.offsets, &keys.offsets])
    }
}

impl Ragged {
    /// The position of the query within its sample, for every pair of query and key.
    pub fn row_index(&self, keys: &Ragged, heads: usize) -> Tensor {
        self.index(ScoreKind::Row, keys, heads)
    }

    /// The position of the key within its sample, for every pair of query and key.
    pub fn key_index(&self, keys: &Ragged, heads: usize) -> Tensor {
        self.index(ScoreKind::Key, keys, heads)
    }

    fn index(&self, kind: ScoreKind, keys: &Ragged, heads: usize) -> Tensor {
        let op = ScoreIndex { kind, heads, rows: self.total.clone(), keys: keys.total.clone() };
        self.offsets.apply(op, &[&keys.offsets])
    }

    /// Broadcasts a value per sample `[B]` to all pairs of query and key.
    pub fn per_sample(&self, keys: &Ragged, heads: usize, values: &Tensor) -> Tensor {
        self.spread(ScoreKind::Sample, keys, heads, values)
    }

    /// Broadcasts a value per query `[rows]` or `[H, rows]` to all pairs of query and key.
    pub fn per_row(&self, keys: &Ragged, heads: usize, values: &Tensor) -> Tensor {
        self.spread(ScoreKind::Row, keys, heads, values)
    }

    /// Broadcasts a value per key `[keys]` or `[H, keys]` to all pairs of query and key.
    pub fn per_key(&self, keys: &Ragged, heads: usize, values: &Tensor) -> Tensor {
        self.spread(ScoreKind::Key, keys, heads, values)
    }

    /// Broadcasts a value per sample, query or key to all pairs.
    pub(crate) fn spread(&self, kind: ScoreKind, keys: &Ragged, heads: usize, values: &Tensor) -> Tensor {
        let op = ScoreBroadcast { kind, heads, rows: self.total.clone(), keys: keys.total.clone() };
        values.apply(op, &[&self.offsets, &keys.offsets])
    }
}
