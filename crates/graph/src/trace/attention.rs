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
    #[track_caller]
    pub fn scores(&self, k: impl AsRef<Tensor>, rows: impl AsRef<Ragged>, keys: impl AsRef<Ragged>) -> Tensor {
        let (k, rows, keys) = (k.as_ref(), rows.as_ref(), keys.as_ref());
        self.apply(Scores, &[k, &rows.offsets, &keys.offsets])
    }

    /// Values of this table `[V, H]` by a row `index` for every pair of query and key, each from the column of its head.
    #[track_caller]
    pub fn gather_scores(&self, index: impl AsRef<Tensor>) -> Tensor {
        let index = index.as_ref();
        self.apply(ScoreGather, &[index])
    }

    /// The softmax of these scores over the keys of each query for which the bool `keep` of the pair is true; over all
    /// keys if `None`. The weights of other keys are 0, and so are all weights of a query without a kept key.
    #[track_caller]
    pub fn softmax_scores(&self, keep: Option<&Tensor>, rows: impl AsRef<Ragged>, keys: impl AsRef<Ragged>) -> Tensor {
        let (rows, keys) = (rows.as_ref(), keys.as_ref());
        let all = self.scalar(DType::Bool, 1.0);
        self.apply(ScoreSoftmax, &[keep.unwrap_or(&all), &rows.offsets, &keys.offsets])
    }

    /// For every query the sum of values `v` `[keys, H, V]`, weighted by these scores: `[rows, H, V]`.
    ///
    /// For pairs whose weight a select sets to 0, queries and keys may hold any value. Values must be finite: kernels
    /// skip some of these pairs and multiply others by 0, which gives NaN for infinities and NaN.
    #[track_caller]
    pub fn weighted_sum(&self, v: impl AsRef<Tensor>, rows: impl AsRef<Ragged>, keys: impl AsRef<Ragged>) -> Tensor {
        let (v, rows, keys) = (v.as_ref(), rows.as_ref(), keys.as_ref());
        self.apply(WeightedSum { kind: ScoreKind::Row }, &[v, &rows.offsets, &keys.offsets])
    }

    /// For every key the sum of values `v` `[rows, H, V]` of its sample's queries, weighted by these scores:
    /// `[keys, H, V]`. Values must be finite, as in [`Tensor::weighted_sum`].
    #[track_caller]
    pub fn weighted_sum_by_key(
        &self,
        v: impl AsRef<Tensor>,
        rows: impl AsRef<Ragged>,
        keys: impl AsRef<Ragged>,
    ) -> Tensor {
        let (v, rows, keys) = (v.as_ref(), rows.as_ref(), keys.as_ref());
        self.apply(WeightedSum { kind: ScoreKind::Key }, &[v, &rows.offsets, &keys.offsets])
    }

    /// Reduces these scores over the pairs of every sample, query or key: `[H, n]`, the shape that
    /// [`Ragged::per_sample`], [`Ragged::per_row`] and [`Ragged::per_key`] accept.
    #[track_caller]
    pub fn reduce_scores(
        &self,
        op: ReduceOp,
        kind: ScoreKind,
        rows: impl AsRef<Ragged>,
        keys: impl AsRef<Ragged>,
    ) -> Tensor {
        let (rows, keys) = (rows.as_ref(), keys.as_ref());
        self.apply(ScoreReduce { op, kind }, &[&rows.offsets, &keys.offsets])
    }
}

impl Ragged {
    /// The position of the query within its sample, for every pair of query and key.
    #[track_caller]
    pub fn row_index(&self, keys: impl AsRef<Ragged>, heads: usize) -> Tensor {
        let keys = keys.as_ref();
        self.index(ScoreKind::Row, keys, heads)
    }

    /// The position of the key within its sample, for every pair of query and key.
    #[track_caller]
    pub fn key_index(&self, keys: impl AsRef<Ragged>, heads: usize) -> Tensor {
        let keys = keys.as_ref();
        self.index(ScoreKind::Key, keys, heads)
    }

    #[track_caller]
    fn index(&self, kind: ScoreKind, keys: &Ragged, heads: usize) -> Tensor {
        let op = ScoreIndex { kind, heads, rows: self.total.clone(), keys: keys.total.clone() };
        self.offsets.apply(op, &[&keys.offsets])
    }

    /// Broadcasts a value per sample `[B]` to all pairs of query and key.
    #[track_caller]
    pub fn per_sample(&self, keys: impl AsRef<Ragged>, heads: usize, values: impl AsRef<Tensor>) -> Tensor {
        let (keys, values) = (keys.as_ref(), values.as_ref());
        self.spread(ScoreKind::Sample, keys, heads, values)
    }

    /// Broadcasts a value per query `[rows]` or `[H, rows]` to all pairs of query and key.
    #[track_caller]
    pub fn per_row(&self, keys: impl AsRef<Ragged>, heads: usize, values: impl AsRef<Tensor>) -> Tensor {
        let (keys, values) = (keys.as_ref(), values.as_ref());
        self.spread(ScoreKind::Row, keys, heads, values)
    }

    /// Broadcasts a value per key `[keys]` or `[H, keys]` to all pairs of query and key.
    #[track_caller]
    pub fn per_key(&self, keys: impl AsRef<Ragged>, heads: usize, values: impl AsRef<Tensor>) -> Tensor {
        let (keys, values) = (keys.as_ref(), values.as_ref());
        self.spread(ScoreKind::Key, keys, heads, values)
    }

    /// Broadcasts a value per sample, query or key to all pairs.
    #[track_caller]
    pub(crate) fn spread(&self, kind: ScoreKind, keys: &Ragged, heads: usize, values: &Tensor) -> Tensor {
        let op = ScoreBroadcast { kind, heads, rows: self.total.clone(), keys: keys.total.clone() };
        values.apply(op, &[&self.offsets, &keys.offsets])
    }
}
