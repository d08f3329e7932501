use super::{Attention, StandardMask, hstu_mha};
use rewire_graph::{Ragged, Scope, Tensor};

/// The gate, the values, the queries and the keys of an STU layer.
#[derive(Clone, Debug)]
pub struct Uvqk {
    /// `[R, H * V]`, after SiLU.
    pub u: Tensor,
    /// `[R, H, V]`.
    pub v: Tensor,
    /// `[R, H, A]`.
    pub q: Tensor,
    /// `[R, H, A]`.
    pub k: Tensor,
}

/// What [`hstu_compute_uqvk`] multiplies with, and the sizes of its results.
#[derive(Clone, Debug)]
pub struct UvqkWeights {
    /// Scale of the input norm, `[E]`.
    pub norm_weight: Tensor,
    /// Shift of the input norm, `[E]`.
    pub norm_bias: Tensor,
    /// `[E, 2 H (A + V)]`.
    pub uvqk_weight: Tensor,
    /// `[2 H (A + V)]`.
    pub uvqk_bias: Tensor,
    /// Added to the variance.
    pub norm_eps: f64,
    /// Number of heads.
    pub num_heads: usize,
    /// Width of a query head.
    pub attn_dim: usize,
    /// Width of a value head.
    pub hidden_dim: usize,
}

/// How [`norm_mul_dropout`] normalizes.
#[derive(Clone, Debug)]
pub struct NormMulDropout {
    /// Added to the variance.
    pub eps: f64,
    /// Normalize each of that many heads alone, with one weight and bias a head; else the whole row.
    pub group_norm: Option<usize>,
    /// Put the gate and the input before the product.
    pub concat_ux: bool,
    /// Probability and seed of dropout on the whole result.
    pub dropout: Option<(f32, Tensor)>,
}

/// `u, v, q, k` from the normalized rows of `x` `[R, E]` by one linear map.
pub fn hstu_compute_uqvk(x: &Tensor, weights: &UvqkWeights) -> Uvqk {
    let (heads, attn, hidden) = (weights.num_heads, weights.attn_dim, weights.hidden_dim);
    let normed = x.layer_norm(&weights.norm_weight, &weights.norm_bias, weights.norm_eps);
    let uvqk = weights.uvqk_bias.addmm(&normed, &weights.uvqk_weight);
    let (values, queries) = (heads * hidden, heads * attn);
    let part = |start, width| uvqk.slice(1, start, width);
    let by_head = |part: Tensor, width: usize| part.reshape(&[x.dim(0), heads.into(), width.into()]);
    Uvqk {
        u: part(0, values).silu(),
        v: by_head(part(values, values), hidden),
        q: by_head(part(2 * values, queries), attn),
        k: by_head(part(2 * values + queries, queries), attn),
    }
}

/// `u * norm(x)`, after `u` and `x` where asked for. `x`, `u` are `[R, H * D]`; the norm has a weight and a bias
/// `[H * D]`, or `[H]` by head.
pub fn norm_mul_dropout(
    scope: &Scope,
    x: &Tensor,
    u: &Tensor,
    [weight, bias]: [&Tensor; 2],
    options: &NormMulDropout,
) -> Tensor {
    let normed = match options.group_norm {
        Some(heads) => {
            let width = x.width() / heads.max(1);
            let by_head = x.reshape(&[x.dim(0), heads.into(), width.into()]);
            let of_head = |affine: &Tensor| affine.reshape(&[heads.into(), 1.into()]);
            by_head.layer_norm(&of_head(weight), &of_head(bias), options.eps).reshape(x.shape())
        }
        None => x.layer_norm(weight, bias, options.eps),
    };
    let gated = u * &normed;
    let out = if options.concat_ux { scope.concat(&[u, x, &gated], 1) } else { gated };
    match &options.dropout {
        Some((ratio, seed)) => out.dropout(*ratio, seed),
        None => out,
    }
}

/// `x + norm_mul_dropout(attn, u) output_weight`.
pub fn hstu_compute_output(
    scope: &Scope,
    [attn, u, x]: [&Tensor; 3],
    norm: [&Tensor; 2],
    output_weight: &Tensor,
    options: &NormMulDropout,
) -> Tensor {
    x.addmm(&norm_mul_dropout(scope, attn, u, norm, options), output_weight)
}

/// [`hstu_compute_uqvk`], then [`hstu_mha`] on its results, as rows `[L, H * V]`.
pub fn hstu_preprocess_and_attention(
    scope: &Scope,
    x: &Tensor,
    rows: &Ragged,
    weights: &UvqkWeights,
    attention: &Attention,
    mask: &StandardMask,
) -> (Uvqk, Tensor) {
    let uvqk = hstu_compute_uqvk(x, weights);
    let attn = hstu_mha(scope, [&uvqk.q, &uvqk.k, &uvqk.v], rows, attention, |pairs| mask.trace(pairs));
    let attn = attn.reshape(uvqk.u.shape());
    (uvqk, attn)
}
