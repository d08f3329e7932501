use super::{Attention, StandardMask, hstu_mha};
use rewire_graph::limits::MAX_WIDTH;
use rewire_graph::{Dim, Ragged, Scope, Tensor};

/// Gate, values, queries and keys of an STU layer.
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

/// Parameters of [`hstu_compute_uqvk`], and the sizes of its results.
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
    /// Epsilon that is added to the variance.
    pub norm_eps: f64,
    /// Number of heads.
    pub num_heads: usize,
    /// Width of a query head.
    pub attn_dim: usize,
    /// Width of a value head.
    pub hidden_dim: usize,
    /// Recompute the normalized rows for gradients instead of storing them; see [`Tensor::recompute`].
    pub recompute_normed_x: bool,
    /// Recompute the results for gradients instead of storing them.
    pub recompute_uvqk: bool,
}

/// Options of [`norm_mul_dropout`].
#[derive(Clone, Debug)]
pub struct NormMulDropout {
    /// Epsilon that is added to the variance.
    pub eps: f64,
    /// Number of heads that are normalized separately, with one weight and bias per head; `None` to normalize the whole row.
    pub group_norm: Option<usize>,
    /// Whether to concatenate gate and input before the product.
    pub concat_ux: bool,
    /// Dropout ratio of the whole result in training; see [`Scope::dropout`].
    pub dropout_ratio: f32,
    /// Recompute the result for gradients instead of storing it; see [`Tensor::recompute`].
    pub recompute_y: bool,
}

/// `u, v, q, k` from the normalized rows of `x` `[R, E]` by one linear layer.
pub fn hstu_compute_uqvk(x: &Tensor, weights: &UvqkWeights) -> Uvqk {
    weights.require(x);
    let normed = x.recompute(weights.recompute_normed_x, || {
        x.layer_norm(&weights.norm_weight, &weights.norm_bias, weights.norm_eps)
    });
    x.recompute(weights.recompute_uvqk, || parts(&normed, weights))
}

/// Splits the linear layer's output into `u`, `v`, `q` and `k`.
fn parts(normed: &Tensor, weights: &UvqkWeights) -> Uvqk {
    let (heads, attn, hidden) = (weights.num_heads, weights.attn_dim, weights.hidden_dim);
    let uvqk = weights.uvqk_bias.addmm(normed, &weights.uvqk_weight);
    let (values, queries) = (heads.saturating_mul(hidden), heads.saturating_mul(attn));
    let part = |start, width| uvqk.slice(1, start, width);
    let by_head = |part: Tensor, width: usize| part.reshape(&[normed.dim(0), heads.into(), width.into()]);
    Uvqk {
        u: part(0, values).silu(),
        v: by_head(part(values, values), hidden),
        q: by_head(part(values.saturating_mul(2), queries), attn),
        k: by_head(part(values.saturating_mul(2).saturating_add(queries), queries), attn),
    }
}

impl UvqkWeights {
    fn require(&self, x: &Tensor) {
        let op = "hstu_compute_uqvk";
        for (argument, value) in
            [("num_heads", self.num_heads), ("attn_dim", self.attn_dim), ("hidden_dim", self.hidden_dim)]
        {
            x.require(op, argument, (1..=MAX_WIDTH).contains(&value), format!("in 1..={MAX_WIDTH}"), value);
        }
        x.require(op, "x", x.rank() == 2, "[R, E]", x.ty());
        let widths = self.attn_dim.checked_add(self.hidden_dim).and_then(|width| width.checked_mul(self.num_heads));
        let out: Dim = widths.and_then(|width| width.checked_mul(2)).unwrap_or(0).into();
        self.norm_weight.require_shape(op, "norm_weight", &[x.dim(1)]);
        self.norm_bias.require_shape(op, "norm_bias", &[x.dim(1)]);
        self.uvqk_weight.require_shape(op, "uvqk_weight", &[x.dim(1), out.clone()]);
        self.uvqk_bias.require_shape(op, "uvqk_bias", &[out]);
    }
}

/// `u * norm(x)`; with `concat_ux`, the concatenation of `u`, `x` and this product. `x` and `u` are `[R, H * D]`. The norm has a weight
/// and a bias `[H * D]`, or `[H]` if heads are normalized separately.
pub fn norm_mul_dropout(
    scope: &Scope,
    x: &Tensor,
    u: &Tensor,
    [weight, bias]: [&Tensor; 2],
    options: &NormMulDropout,
) -> Tensor {
    let op = "norm_mul_dropout";
    let heads = options.group_norm.unwrap_or(1);
    let divides = heads > 0 && x.width().is_multiple_of(heads);
    x.require(op, "x", x.rank() == 2, "[R, H * D]", x.ty());
    x.require(op, "num_heads", divides, format!("a divisor of the width of x, {}", x.width()), heads);
    u.require_shape(op, "u", x.shape());
    let affine = options.group_norm.map_or_else(|| x.dim(1), Dim::from);
    for (argument, tensor) in [("weight", weight), ("bias", bias)] {
        tensor.require_shape(op, argument, std::slice::from_ref(&affine));
    }
    let ratio = options.dropout_ratio;
    x.require(op, "dropout_ratio", (0.0..1.0).contains(&ratio), "at least 0 and below 1", ratio);
    x.recompute(options.recompute_y, || gated(scope, [x, u], [weight, bias], options))
}

fn gated(scope: &Scope, [x, u]: [&Tensor; 2], [weight, bias]: [&Tensor; 2], options: &NormMulDropout) -> Tensor {
    let normed = match options.group_norm {
        Some(heads) => {
            let width = x.width() / heads.max(1);
            let by_head = x.reshape(&[x.dim(0), heads.into(), width.into()]);
            let of_head = |affine: &Tensor| affine.reshape(&[heads.into(), 1.into()]);
            let normed = (&by_head.normalize(options.eps) * of_head(weight)) + of_head(bias);
            normed.reshape(x.shape())
        }
        None => x.layer_norm(weight, bias, options.eps),
    };
    let gated = u * &normed;
    let out = if options.concat_ux { scope.concat(&[u, x, &gated], 1) } else { gated };
    scope.dropout(&out, options.dropout_ratio)
}

/// `x + norm_mul_dropout(attn, u) output_weight`, with `x` `[R, E]`, `attn` and `u` `[R, H * D]`, and `output_weight`
/// `[H * D, E]`, or `[3 * H * D, E]` with `concat_ux`.
pub fn hstu_compute_output(
    scope: &Scope,
    [attn, u, x]: [&Tensor; 3],
    norm: [&Tensor; 2],
    output_weight: &Tensor,
    options: &NormMulDropout,
) -> Tensor {
    let op = "hstu_compute_output";
    x.require(op, "x", x.rank() == 2, "[R, E]", x.ty());
    attn.require(op, "attn", attn.rank() == 2 && attn.dim(0) == x.dim(0), "[R, H * D] with the rows of x", attn.ty());
    let rows = attn.dim(1) * if options.concat_ux { 3 } else { 1 };
    output_weight.require_shape(op, "output_weight", &[rows, x.dim(1)]);
    x.addmm(&norm_mul_dropout(scope, attn, u, norm, options), output_weight)
}

/// [`hstu_compute_uqvk`], then [`hstu_mha`] on its results: rows `[L, H * V]`.
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
