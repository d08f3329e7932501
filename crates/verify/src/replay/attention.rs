use super::tracer::{CaseTracer, length, out};
use super::{Outputs, ReplayError, rowwise};
use rewire_graph::{Ragged, Tensor};
use rewire_hstu::ops::{self, Attention, IntervalMask, SeqLen, StandardMask};
use serde::Deserialize;

#[derive(Deserialize)]
struct Mha {
    alpha: f64,
    max_seq_len: usize,
    #[serde(default = "yes")]
    causal: bool,
    #[serde(default)]
    dropout_pr: f32,
    #[serde(default)]
    training: bool,
    #[serde(default)]
    max_attn_len: usize,
    #[serde(default)]
    contextual_seq_len: usize,
    #[serde(default)]
    min_full_attn_seq_len: usize,
    #[serde(default = "no_scaling")]
    scaling_seqlen: i64,
}

fn yes() -> bool {
    true
}

fn no_scaling() -> i64 {
    -1
}

impl Mha {
    fn attention(&self) -> Attention {
        let divisor = SeqLen::Fixed(self.max_seq_len).scaled(length(self.scaling_seqlen));
        Attention { alpha: self.alpha, divisor }
    }

    fn mask(&self, num_targets: Option<Tensor>) -> StandardMask {
        StandardMask {
            causal: self.causal,
            num_targets,
            max_attn_len: self.max_attn_len,
            contextual_seq_len: self.contextual_seq_len,
            min_full_attn_seq_len: self.min_full_attn_seq_len,
        }
    }
}

pub(super) fn hstu_mha(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let attrs: Mha = case.attributes()?;
    if attrs.training && attrs.dropout_pr > 0.0 {
        return Err(case.unsupported_dropout());
    }
    let rows = case.offsets("seq_offsets")?;
    let total = std::slice::from_ref(&rows.total);
    let (q, k, v) = (case.input("q", total)?, case.input("k", total)?, case.input("v", total)?);
    if case.has("attn_func") {
        let heads = case.extent("attn_func", 0)?.into();
        let mask = IntervalMask { attn_func: case.input("attn_func", &[heads, 3.into(), rows.total.clone()])? };
        let attended = ops::hstu_mha(&case.scope, [&q, &k, &v], &rows, &attrs.attention(), |pairs| mask.trace(pairs));
        return Ok(out(attended));
    }
    let mask = attrs.mask(case.num_targets(&rows)?);
    Ok(out(ops::hstu_mha(&case.scope, [&q, &k, &v], &rows, &attrs.attention(), |pairs| mask.trace(pairs))))
}

pub(super) fn delta_hstu_mha(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let attrs: Mha = case.attributes()?;
    let keys = case.offsets("seq_offsets")?;
    let total = std::slice::from_ref(&keys.total);
    let (k, v) = (case.input("k", total)?, case.input("v", total)?);
    let samples = case.extent("seq_offsets", 0)?.saturating_sub(1);
    let rows = equal_rows(case, "delta_q", samples, &keys)?;
    let q = case.input("delta_q", std::slice::from_ref(&rows.total))?;
    let mask = attrs.mask(case.num_targets(&keys)?);
    let qkv = [&q, &k, &v];
    Ok(out(ops::delta_hstu_mha(&case.scope, qkv, &rows, &keys, &attrs.attention(), |pairs| mask.trace(pairs))))
}

/// The rows of the input `name`, evenly divided among `samples` samples.
pub(super) fn equal_rows(case: &CaseTracer, name: &str, samples: usize, like: &Ragged) -> Result<Ragged, ReplayError> {
    let rows = case.extent(name, 0)?;
    match rows.checked_div(samples.max(1)) {
        Some(each) if each * samples == rows => {
            Ok(Ragged::dense(&case.scope, like.batch.clone(), &case.scope.host_size(each)))
        }
        _ => Err(case.wrong_shape(name, format!("with an equal number of rows for each of {samples} samples"))),
    }
}

#[derive(Deserialize)]
struct Sla {
    nheads: usize,
    total_q: usize,
    sla_k1: usize,
    sla_k2: usize,
    #[serde(default)]
    contextual_seq_len: usize,
}

pub(super) fn build_sla_func_tensor(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let attrs: Sla = case.attributes()?;
    let rows = case.offsets("seq_offsets")?.of_total(&attrs.total_q.into());
    let mask = ops::SemiLocal {
        sla_k1: attrs.sla_k1,
        sla_k2: attrs.sla_k2,
        contextual_seq_len: attrs.contextual_seq_len,
        num_targets: case.num_targets(&rows)?,
    };
    let intervals = ops::build_sla_func_tensor(&case.scope, &rows, attrs.nheads, &mask);
    Ok(vec![("attn_func".to_owned(), intervals)])
}

#[derive(Deserialize)]
struct PreprocessAndAttention {
    attn_alpha: f64,
    max_seq_len: usize,
    #[serde(default = "yes")]
    causal: bool,
    #[serde(default)]
    max_attn_len: usize,
    #[serde(default)]
    contextual_seq_len: usize,
    #[serde(default = "no_scaling")]
    scaling_seqlen: i64,
}

pub(super) fn preprocess_and_attention(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let attrs: PreprocessAndAttention = case.attributes()?;
    let rows = case.offsets("seq_offsets")?;
    let x = case.input("x", std::slice::from_ref(&rows.total))?;
    let weights = rowwise::uvqk_weights(case)?;
    let divisor = SeqLen::Fixed(attrs.max_seq_len).scaled(length(attrs.scaling_seqlen));
    let mask = StandardMask {
        causal: attrs.causal,
        num_targets: case.num_targets(&rows)?,
        max_attn_len: attrs.max_attn_len,
        contextual_seq_len: attrs.contextual_seq_len,
        min_full_attn_seq_len: 0,
    };
    let attention = Attention { alpha: attrs.attn_alpha, divisor };
    let (uvqk, attn) = ops::hstu_preprocess_and_attention(&case.scope, &x, &rows, &weights, &attention, &mask);
    let named = [("u", uvqk.u), ("attn_output", attn), ("k", uvqk.k), ("v", uvqk.v)];
    Ok(named.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect())
}
