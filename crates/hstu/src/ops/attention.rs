use super::Pairs;
use crate::number::{F32, is_f32};
use rewire_graph::{DType, Ragged, Scope, Tensor};

/// A divisor of attention weights: a constant, or a scalar of the shape program.
#[derive(Clone, Debug)]
pub enum SeqLen {
    /// The same for every run.
    Fixed(usize),
    /// Known when a graph runs.
    Host(Tensor),
}

impl From<usize> for SeqLen {
    fn from(length: usize) -> Self {
        Self::Fixed(length)
    }
}

impl From<Tensor> for SeqLen {
    fn from(length: Tensor) -> Self {
        Self::Host(length)
    }
}

impl SeqLen {
    /// The divisor as a scalar of the shape program.
    pub fn to_host(&self, scope: &Scope) -> Tensor {
        match self {
            Self::Fixed(length) => scope.host_size(*length),
            Self::Host(length) => length.clone(),
        }
    }

    /// `scaling_seqlen` if given, otherwise `self`.
    pub fn scaled(&self, scaling_seqlen: Option<usize>) -> Self {
        scaling_seqlen.map_or_else(|| self.clone(), Self::Fixed)
    }
}

/// How attention weights are computed from scores.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Scale of the scores.
    pub alpha: f64,
    /// Divisor of the weights, one number for the batch.
    pub divisor: SeqLen,
}

impl Attention {
    /// Weights are `silu(alpha score) / divisor`.
    pub fn new(alpha: f64, divisor: impl Into<SeqLen>) -> Self {
        Self { alpha, divisor: divisor.into() }
    }

    /// The attention weights of scores.
    fn weights(&self, scores: &Tensor) -> Tensor {
        let activated = (scores * self.alpha).silu();
        match &self.divisor {
            SeqLen::Fixed(length) => &activated * (1.0 / (*length).max(1) as f64),
            SeqLen::Host(length) => &activated / length.cast(DType::F32),
        }
    }
}

/// `sum_j silu(alpha <q_i, k_j>) / divisor * mask_ij * v_j` over the keys of the same sample.
///
/// `q`, `k` are `[L, H, A]`, `v` and the result `[L, H, V]`. `mask` traces a bool per pair.
pub fn hstu_mha(
    scope: &Scope,
    qkv: [&Tensor; 3],
    rows: &Ragged,
    attention: &Attention,
    mask: impl FnOnce(&Pairs) -> Tensor,
) -> Tensor {
    delta_hstu_mha(scope, qkv, rows, rows, attention, mask)
}

/// [`hstu_mha`] for queries that are the last rows of every sample.
///
/// `q` is `[R, H, A]` with the ragged rows `rows`; `k`, `v` are `[L, H, ..]` with the ragged rows `keys`. The number of queries may
/// differ by sample.
pub fn delta_hstu_mha(
    scope: &Scope,
    [q, k, v]: [&Tensor; 3],
    rows: &Ragged,
    keys: &Ragged,
    attention: &Attention,
    mask: impl FnOnce(&Pairs) -> Tensor,
) -> Tensor {
    require(q, k, v, rows, keys, attention);
    weighted(&Pairs::new(scope, rows, keys, q.ty().extent(1).unwrap_or(0)), [q, k, v], attention, mask)
}

/// [`hstu_mha`] for queries that follow the keys of their sample and are not keys themselves: targets over history.
///
/// `q` is `[R, H, A]` with the ragged rows `rows`; `k`, `v` are `[L, H, ..]` with the ragged rows `keys`. In the mask, positions count
/// the keys of a sample first, then its queries.
pub fn target_hstu_mha(
    scope: &Scope,
    [q, k, v]: [&Tensor; 3],
    rows: &Ragged,
    keys: &Ragged,
    attention: &Attention,
    mask: impl FnOnce(&Pairs) -> Tensor,
) -> Tensor {
    require(q, k, v, rows, keys, attention);
    weighted(&Pairs::after(scope, rows, keys, q.ty().extent(1).unwrap_or(0)), [q, k, v], attention, mask)
}

/// The term for a query's own key, to be added to the result of [`target_hstu_mha`]: `silu(alpha <q_i, k_i>) / divisor * v_i`, with `q`,
/// `k` `[R, H, A]` and `v` `[R, H, V]`.
pub fn own_hstu_mha(q: &Tensor, k: &Tensor, v: &Tensor, attention: &Attention) -> Tensor {
    require_heads(q, k, v, attention);
    k.require_shape("hstu_mha", "k", q.shape());
    v.require("hstu_mha", "v", v.dim(0) == q.dim(0), format!("of the rows of q, {}", q.dim(0)), v.ty());
    attention.weights(&(q * k).sum(2)) * v
}

fn weighted(
    pairs: &Pairs,
    [q, k, v]: [&Tensor; 3],
    attention: &Attention,
    mask: impl FnOnce(&Pairs) -> Tensor,
) -> Tensor {
    let (rows, keys) = (pairs.queries(), pairs.keys());
    let weights = attention.weights(&q.scores(k, rows, keys));
    let zero = pairs.scope().scalar(DType::F32, 0.0);
    mask(pairs).select(&weights, &zero).weighted_sum(v, rows, keys)
}

fn require(q: &Tensor, k: &Tensor, v: &Tensor, rows: &Ragged, keys: &Ragged, attention: &Attention) {
    require_heads(q, k, v, attention);
    keys.require_batch("hstu_mha", "keys", &rows.batch);
}

fn require_heads(q: &Tensor, k: &Tensor, v: &Tensor, attention: &Attention) {
    let op = "hstu_mha";
    for (argument, tensor, like) in [("q", q, q), ("k", k, q), ("v", v, q)] {
        let heads = tensor.rank() == 3 && tensor.dim(1) == like.dim(1) && tensor.width() > 0;
        let expected = format!("[L, H, D] with H {} and a constant D", like.dim(1));
        tensor.require(op, argument, heads && tensor.dtype().is_float(), expected, tensor.ty());
    }
    k.require(op, "k", k.dim(2) == q.dim(2), format!("of the width of q, {}", q.dim(2)), k.ty());
    q.require(op, "alpha", is_f32(attention.alpha), F32, attention.alpha);
}
