use super::tracer::{CaseTracer, out};
use super::{Outputs, ReplayError};
use rewire_graph::Tensor;
use rewire_hstu::modules::width;
use rewire_hstu::ops::{self, NormMulDropout, UvqkWeights};
use serde::Deserialize;

/// Inputs that all have the same number of rows.
fn rows<const N: usize>(case: &CaseTracer, names: [&str; N]) -> Result<[Tensor; N], ReplayError> {
    let rows = [case.scope.size("rows")];
    let mut tensors = vec![];
    for name in names {
        tensors.push(case.input(name, &rows)?);
    }
    tensors.try_into().map_err(|_| ReplayError::Missing { name: names.join(", ") })
}

pub(super) fn addmm(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let vector = case.rank("input")? == 1;
    let rows = [case.scope.size("rows")];
    let a = case.input("mat1", &rows)?;
    let b = case.input("mat2", &[])?;
    let input = case.input("input", if vector { &[] } else { &rows })?;
    Ok(out(input.addmm(&a, &b)))
}

#[derive(Deserialize)]
struct Norm {
    eps: f64,
}

pub(super) fn layer_norm(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let Norm { eps } = case.attributes()?;
    let [x] = rows(case, ["x"])?;
    Ok(out(x.layer_norm(&case.input("weight", &[])?, &case.input("bias", &[])?, eps)))
}

pub(super) fn swish_layer_norm(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let Norm { eps } = case.attributes()?;
    let [x] = rows(case, ["x"])?;
    Ok(out(x.swish_layer_norm(&case.input("weight", &[])?, &case.input("bias", &[])?, eps)))
}

pub(super) fn rms_norm(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let Norm { eps } = case.attributes()?;
    let [x] = rows(case, ["x"])?;
    Ok(out(x.rms_norm(&case.input("weight", &[])?, eps)))
}

#[derive(Deserialize)]
struct NormMul {
    #[serde(alias = "norm_eps")]
    eps: f64,
    num_heads: usize,
    #[serde(default)]
    dropout_ratio: f32,
    #[serde(default)]
    concat_ux: bool,
    #[serde(default)]
    group_norm: bool,
    #[serde(default, rename = "recompute_y_in_backward")]
    recompute_y: bool,
}

impl NormMul {
    fn options(&self) -> NormMulDropout {
        let group_norm = self.group_norm.then_some(self.num_heads);
        let (concat_ux, dropout_ratio) = (self.concat_ux, self.dropout_ratio);
        NormMulDropout { eps: self.eps, group_norm, concat_ux, dropout_ratio, recompute_y: self.recompute_y }
    }
}

pub(super) fn norm_mul_dropout(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let options = case.attributes::<NormMul>()?.options();
    let [x, u] = rows(case, ["x", "u"])?;
    let (weight, bias) = (case.input("weight", &[])?, case.input("bias", &[])?);
    Ok(out(ops::norm_mul_dropout(&case.scope, &x, &u, [&weight, &bias], &options)))
}

pub(super) fn compute_output(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let options = case.attributes::<NormMul>()?.options();
    let [attn, u, x] = rows(case, ["attn", "u", "x"])?;
    let (weight, bias) = (case.input("norm_weight", &[])?, case.input("norm_bias", &[])?);
    let output_weight = case.input("output_weight", &[])?;
    Ok(out(ops::hstu_compute_output(&case.scope, [&attn, &u, &x], [&weight, &bias], &output_weight, &options)))
}

#[derive(Deserialize)]
struct Uvqk {
    norm_eps: f64,
    num_heads: usize,
    attn_dim: usize,
    hidden_dim: usize,
}

pub(super) fn uvqk_weights(case: &CaseTracer) -> Result<UvqkWeights, ReplayError> {
    let Uvqk { norm_eps, num_heads, attn_dim, hidden_dim } = case.attributes()?;
    width("num_heads", num_heads)?;
    width("attn_dim", attn_dim)?;
    width("hidden_dim", hidden_dim)?;
    Ok(UvqkWeights {
        norm_weight: case.input("norm_weight", &[])?,
        norm_bias: case.input("norm_bias", &[])?,
        uvqk_weight: case.input("uvqk_weight", &[])?,
        uvqk_bias: case.input("uvqk_bias", &[])?,
        norm_eps,
        num_heads,
        attn_dim,
        hidden_dim,
        recompute_normed_x: false,
        recompute_uvqk: false,
    })
}

pub(super) fn compute_uqvk(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let [x] = rows(case, ["x"])?;
    let uvqk = ops::hstu_compute_uqvk(&x, &uvqk_weights(case)?);
    let named = [("u", uvqk.u), ("q", uvqk.q), ("k", uvqk.k), ("v", uvqk.v)];
    Ok(named.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect())
}
