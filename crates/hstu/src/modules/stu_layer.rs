use super::{ConfigError, count, ratio, scaling, width};
use crate::number::{F32, is_f32};
use crate::ops::{
    Attention, NormMulDropout, SemiLocal, SeqLen, StandardMask, Uvqk, UvqkWeights, delta_hstu_mha, hstu_compute_output,
    hstu_compute_uqvk, hstu_mha, own_hstu_mha, target_hstu_mha,
};
use rewire_graph::{DType, Ragged, Scope, Tensor};
use serde::Deserialize;

/// Epsilon of both norms of a layer.
const NORM_EPS: f64 = 1e-6;

/// Options of an STU layer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StuConfig {
    /// Width of rows.
    pub embedding_dim: usize,
    /// Number of heads.
    pub num_heads: usize,
    /// Width of a value head.
    pub hidden_dim: usize,
    /// Width of a query head.
    pub attention_dim: usize,
    /// Dropout of the output in training.
    #[serde(default = "output_dropout_ratio")]
    pub output_dropout_ratio: f32,
    /// Causal attention: rows attend only to earlier rows.
    #[serde(default = "yes")]
    pub causal: bool,
    /// Targets do not attend to each other.
    #[serde(default = "yes")]
    pub target_aware: bool,
    /// Maximum attention distance; `None` or 0 for no limit.
    #[serde(default)]
    pub max_attn_len: Option<usize>,
    /// Scale of scores; `1 / sqrt(attention_dim)` if missing or 0.
    #[serde(default)]
    pub attn_alpha: Option<f64>,
    /// Normalize the output per head.
    #[serde(default)]
    pub use_group_norm: bool,
    /// Length of the contextual prefix; the pipeline's if missing or negative.
    #[serde(default)]
    pub contextual_seq_len: Option<i64>,
    /// Length of the local window of semi-local attention.
    #[serde(default)]
    pub sla_k1: usize,
    /// Length of the global prefix of semi-local attention.
    #[serde(default)]
    pub sla_k2: usize,
    /// Divisor of attention weights; the pipeline's if missing or negative.
    #[serde(default)]
    pub scaling_seqlen: Option<i64>,
    /// Recompute normalized rows for gradients instead of storing them; results are bitwise equal. This and the following two options
    /// default to false.
    #[serde(default)]
    pub recompute_normed_x: bool,
    /// Recompute gate, values, queries and keys for gradients.
    #[serde(default)]
    pub recompute_uvqk: bool,
    /// Recompute the input of the output projection for gradients.
    #[serde(default)]
    pub recompute_y: bool,
    /// Ignored: results do not depend on the order of samples.
    #[serde(default)]
    pub sort_by_length: bool,
}

fn output_dropout_ratio() -> f32 {
    0.3
}

fn yes() -> bool {
    true
}

/// An STU layer: attention between two linear layers, with a residual.
#[derive(Clone, Debug)]
pub struct StuLayer {
    /// Options.
    pub config: StuConfig,
}

/// The input of a layer.
#[derive(Clone, Debug)]
pub struct StuInput {
    /// Rows `[L, E]`.
    pub x: Tensor,
    /// The sample of each row.
    pub rows: Ragged,
    /// Number of targets `[B]` on the host; `None` without targets.
    pub num_targets: Option<Tensor>,
    /// Divisor of attention weights if `scaling_seqlen` is not set.
    pub max_seq_len: SeqLen,
}

/// Cached keys and values of the first rows of every sample.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Keys `[sum c, H * A]`.
    pub k: Tensor,
    /// Values `[sum c, H * V]`.
    pub v: Tensor,
    /// Number of cached rows of every sample.
    pub rows: Ragged,
    /// An upper bound of the numbers of cached rows, a scalar of the shape program.
    pub max_len: Tensor,
}

/// Keys and values of histories, which candidates and later history rows attend to.
#[derive(Clone, Debug)]
pub struct History {
    /// Keys `[sum c, H * A]`.
    pub k: Tensor,
    /// Values `[sum c, H * V]`.
    pub v: Tensor,
    /// The sample of each row.
    pub rows: Ragged,
}

impl StuConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key.
    pub fn check(&self) -> Result<(), ConfigError> {
        width("embedding_dim", self.embedding_dim)?;
        width("num_heads", self.num_heads)?;
        width("hidden_dim", self.hidden_dim)?;
        width("attention_dim", self.attention_dim)?;
        count("contextual_seq_len", self.context())?;
        count("max_attn_len", self.max_attn_len.unwrap_or(0))?;
        count("sla_k1", self.sla_k1)?;
        count("sla_k2", self.sla_k2)?;
        ratio("output_dropout_ratio", self.output_dropout_ratio)?;
        if let Some(alpha) = self.attn_alpha.filter(|alpha| !is_f32(*alpha)) {
            return Err(ConfigError::new("attn_alpha", F32, alpha));
        }
        self.scaling_seqlen.map_or(Ok(()), |length| scaling("scaling_seqlen", length))
    }

    /// Length of the contextual prefix; 0 if not set or negative.
    pub fn context(&self) -> usize {
        self.contextual_seq_len.and_then(|length| usize::try_from(length).ok()).unwrap_or(0)
    }

    fn is_semi_local(&self) -> bool {
        self.sla_k1 > 0 || self.sla_k2 > 0
    }

    fn targets<'a>(&self, num_targets: Option<&'a Tensor>) -> Option<&'a Tensor> {
        num_targets.filter(|_| self.target_aware)
    }

    /// The mask of semi-local attention; `None` if the layer does not use it.
    pub fn semi_local(&self, num_targets: Option<&Tensor>) -> Option<SemiLocal> {
        self.is_semi_local().then(|| SemiLocal {
            sla_k1: self.sla_k1,
            sla_k2: self.sla_k2,
            contextual_seq_len: self.context(),
            num_targets: self.targets(num_targets).cloned(),
        })
    }

    fn standard_mask(&self, num_targets: Option<&Tensor>) -> StandardMask {
        StandardMask {
            causal: self.causal,
            num_targets: self.targets(num_targets).cloned(),
            max_attn_len: self.max_attn_len.unwrap_or(0),
            contextual_seq_len: self.context(),
            min_full_attn_seq_len: 0,
        }
    }

    fn attention(&self, max_seq_len: &SeqLen) -> Attention {
        let alpha = match self.attn_alpha {
            Some(alpha) if alpha != 0.0 => alpha,
            _ => 1.0 / (self.attention_dim as f64).sqrt(),
        };
        let scaling = self.scaling_seqlen.and_then(|length| usize::try_from(length).ok());
        Attention { alpha, divisor: max_seq_len.scaled(scaling) }
    }
}

impl StuLayer {
    /// The layer's output rows `[L, E]`.
    pub fn forward(&self, scope: &Scope, input: &StuInput) -> Tensor {
        self.full(scope, input).0
    }

    /// [`StuLayer::forward`], plus a KV cache of the first `cached` rows of every sample. `max_len` is an upper bound of the numbers of
    /// cached rows and defaults to their maximum. The run fails if a sample has fewer rows than `cached`, or `cached` exceeds `max_len`.
    pub fn prefill(
        &self,
        scope: &Scope,
        input: &StuInput,
        cached: &Ragged,
        max_len: Option<&Tensor>,
    ) -> (Tensor, KvCache) {
        let (out, uvqk) = self.full(scope, input);
        let within = cached.lengths.at_most(&input.rows.lengths, "number of cached rows");
        let within = max_len.map_or_else(|| within.clone(), |most| within.at_most(most, "number of cached rows"));
        let cached = &Ragged::from_lengths(&within);
        let first = |x: &Tensor| flat(x).jagged_head(&input.rows, cached);
        let max_len = max_len.map_or_else(|| cached.max(), Tensor::clone);
        (out, KvCache { k: first(&uvqk.k), v: first(&uvqk.v), rows: cached.clone(), max_len })
    }

    /// The layer's output for new rows `x` `[sum d, E]` that follow the cached ones. The number of new rows may differ by sample.
    /// `num_targets` counts the targets at the end of cached and new rows.
    pub fn cached_forward(
        &self,
        scope: &Scope,
        x: &Tensor,
        rows: &Ragged,
        num_targets: Option<&Tensor>,
        cache: &KvCache,
    ) -> Tensor {
        let uvqk = hstu_compute_uqvk(x, &self.uvqk_weights(scope));
        let by_head = |cached: &Tensor, new: &Tensor| {
            let (joined, joined_rows) = cached.jagged_concat(&cache.rows, &flat(new), rows);
            joined.reshape(&[joined_rows.total, new.dim(1), new.dim(2)])
        };
        let (k, v) = (by_head(&cache.k, &uvqk.k), by_head(&cache.v, &uvqk.v));
        let keys = cache.rows.plus(rows);
        let attention = self.config.attention(&SeqLen::Host(&cache.max_len + rows.max()));
        let mask = self.config.standard_mask(num_targets);
        let attn = delta_hstu_mha(scope, [&uvqk.q, &k, &v], rows, &keys, &attention, |pairs| mask.trace(pairs));
        self.output(scope, &attn, &uvqk, x)
    }

    /// The layer's output for history rows `x` `[sum d, E]` of samples without candidates, and their keys and values in the storage type
    /// `kept`. If `before` is given, they follow its rows.
    pub fn history(
        &self,
        scope: &Scope,
        (x, rows): (&Tensor, &Ragged),
        before: Option<&History>,
        max_seq_len: &SeqLen,
        kept: DType,
    ) -> (Tensor, History) {
        let uvqk = hstu_compute_uqvk(x, &self.uvqk_weights(scope));
        let [k, v] = [&uvqk.k, &uvqk.v].map(|new| flat(new).cast(kept));
        let all = match before {
            None => History { k: k.clone(), v: v.clone(), rows: rows.clone() },
            Some(before) => {
                let join = |cached: &Tensor, new: &Tensor| cached.jagged_concat(&before.rows, new, rows).0;
                History { k: join(&before.k, &k), v: join(&before.v, &v), rows: before.rows.plus(rows) }
            }
        };
        let (attention, qkv) = (self.config.attention(max_seq_len), self.heads(&uvqk.q, &all));
        let attn = match self.config.semi_local(None) {
            Some(mask) => delta_hstu_mha(scope, qkv.each_ref(), rows, &all.rows, &attention, |pairs| mask.trace(pairs)),
            None => {
                let mask = self.config.standard_mask(None);
                delta_hstu_mha(scope, qkv.each_ref(), rows, &all.rows, &attention, |pairs| mask.trace(pairs))
            }
        };
        (self.output(scope, &attn, &uvqk, x), History { k, v, rows: rows.clone() })
    }

    /// The layer's output for candidates `x` `[sum T, E]`, which attend to a history and themselves. The result of a candidate does not
    /// depend on other candidates, bit for bit.
    pub fn targets(
        &self,
        scope: &Scope,
        (x, rows): (&Tensor, &Ragged),
        history: &History,
        max_seq_len: &SeqLen,
    ) -> Tensor {
        let uvqk = hstu_compute_uqvk(x, &self.uvqk_weights(scope));
        let (attention, qkv) = (self.config.attention(max_seq_len), self.heads(&uvqk.q, history));
        let (qkv, keys, num_targets) = (qkv.each_ref(), &history.rows, Some(&rows.lengths));
        let attn = match self.config.semi_local(num_targets) {
            Some(mask) => target_hstu_mha(scope, qkv, rows, keys, &attention, |pairs| mask.trace(pairs)),
            None => {
                let mask = self.config.standard_mask(num_targets);
                let seen = target_hstu_mha(scope, qkv, rows, keys, &attention, |pairs| mask.trace(pairs));
                seen + own_hstu_mha(&uvqk.q, &uvqk.k, &uvqk.v, &attention)
            }
        };
        self.output(scope, &attn, &uvqk, x)
    }

    /// Queries, keys and values per head, in the queries' element type.
    fn heads(&self, q: &Tensor, history: &History) -> [Tensor; 3] {
        let by_head = |x: &Tensor, width: usize| {
            x.cast(q.dtype()).reshape(&[x.dim(0), self.config.num_heads.into(), width.into()])
        };
        [q.clone(), by_head(&history.k, self.config.attention_dim), by_head(&history.v, self.config.hidden_dim)]
    }

    fn full(&self, scope: &Scope, input: &StuInput) -> (Tensor, Uvqk) {
        let uvqk = hstu_compute_uqvk(&input.x, &self.uvqk_weights(scope));
        let attention = self.config.attention(&input.max_seq_len);
        let qkv = [&uvqk.q, &uvqk.k, &uvqk.v];
        let num_targets = input.num_targets.as_ref();
        let attn = match self.config.semi_local(num_targets) {
            Some(mask) => hstu_mha(scope, qkv, &input.rows, &attention, |pairs| mask.trace(pairs)),
            None => {
                let mask = self.config.standard_mask(num_targets);
                hstu_mha(scope, qkv, &input.rows, &attention, |pairs| mask.trace(pairs))
            }
        };
        (self.output(scope, &attn, &uvqk, &input.x), uvqk)
    }

    fn uvqk_weights(&self, scope: &Scope) -> UvqkWeights {
        let config = &self.config;
        let width = config.embedding_dim;
        let out = 2 * config.num_heads * (config.hidden_dim + config.attention_dim);
        UvqkWeights {
            norm_weight: scope.weight("_input_norm_weight", &[width.into()]),
            norm_bias: scope.weight("_input_norm_bias", &[width.into()]),
            uvqk_weight: scope.weight("_uvqk_weight", &[width.into(), out.into()]),
            uvqk_bias: scope.weight("_uvqk_beta", &[out.into()]),
            norm_eps: NORM_EPS,
            num_heads: config.num_heads,
            attn_dim: config.attention_dim,
            hidden_dim: config.hidden_dim,
            recompute_normed_x: config.recompute_normed_x,
            recompute_uvqk: config.recompute_uvqk,
        }
    }

    fn output(&self, scope: &Scope, attn: &Tensor, uvqk: &Uvqk, x: &Tensor) -> Tensor {
        let (heads, values) = (self.config.num_heads, self.config.num_heads * self.config.hidden_dim);
        let normed = if self.config.use_group_norm { heads } else { values };
        let [weight, bias] =
            ["_output_norm_weight", "_output_norm_bias"].map(|name| scope.weight(name, &[normed.into()]));
        let output_weight = scope.weight("_output_weight", &[(3 * values).into(), self.config.embedding_dim.into()]);
        let options = NormMulDropout {
            eps: NORM_EPS,
            group_norm: self.config.use_group_norm.then_some(heads),
            concat_ux: true,
            dropout_ratio: self.config.output_dropout_ratio,
            recompute_y: self.config.recompute_y,
        };
        hstu_compute_output(scope, [&flat(attn), &uvqk.u, x], [&weight, &bias], &output_weight, &options)
    }
}

/// Concatenates heads: `[L, H, D]` to `[L, H * D]`.
fn flat(by_head: &Tensor) -> Tensor {
    let width = by_head.dim(1).product(&by_head.dim(2)).unwrap_or_default();
    by_head.reshape(&[by_head.dim(0), width])
}
