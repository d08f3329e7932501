//! Softmax attention.

use super::{Many, One};
use crate::ScalarType;
use crate::call::Call;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;

pub(super) const ONE: One = &[("aten.scaled_dot_product_attention", |c| {
    let y = attention(c, "attn_mask")?;
    c.result(&y)
})];

pub(super) const MANY: Many = &[
    ("aten._scaled_dot_product_flash_attention_for_cpu", |c| first(c, "attn_mask")),
    ("aten._scaled_dot_product_flash_attention", |c| first(c, "attn_mask")),
    ("aten._scaled_dot_product_efficient_attention", |c| first(c, "attn_bias")),
    ("aten._scaled_dot_product_fused_attention_overrideable", |c| first(c, "attn_bias")),
    ("aten._scaled_dot_product_attention_math", |c| first(c, "attn_mask")),
];

/// The attention result. The other results are statistics for gradients, which inference does not need.
fn first(c: &Call<'_>, mask: &str) -> Lowered<Vec<Value>> {
    let y = attention(c, mask)?;
    Ok(std::iter::once(c.nth(0, &y)?).chain((1..c.declared.len()).map(|_| Value::None)).collect())
}

fn attention(c: &Call<'_>, mask_name: &str) -> Lowered<Tensor> {
    let [q, k, v] = [c.tensor("query")?, c.tensor("key")?, c.tensor("value")?];
    if c.float_or("dropout_p", 0.0)? != 0.0 {
        return Fault::unsupported("training");
    }
    let width = c.cx.extent(&q.tensor, q.rank() - 1);
    let scale = match c.has("scale") {
        true => c.cx.f(c.float("scale")?),
        false => match width.as_const() {
            Some(width) => c.cx.f((width as f64).sqrt().recip()),
            None => c.cx.number(&crate::value::Number::Int(width), ScalarType::F32)?.tensor.rsqrt(),
        },
    };
    let (mut k, mut v) = (k.tensor, v.tensor);
    if c.bool_or("enable_gqa", false)? {
        let heads = c.cx.extent(&q.tensor, q.rank() - 3);
        k = repeated(c, &k, &heads)?;
        v = repeated(c, &v, &heads)?;
    }
    let scores = q.tensor.matmul(&k.transpose(-1, -2)) * scale;
    let mut scores = scores;
    let mut can_be_empty = false;
    if c.bool_or("is_causal", false)? {
        let shape = c.cx.shape(&scores);
        let (rows, columns) = (shape.len() - 2, shape.len() - 1);
        let keeps = c.cx.positions(&shape, rows)?.ge(&c.cx.positions(&shape, columns)?);
        scores = keeps.select(&scores, &c.cx.f(f64::NEG_INFINITY));
        can_be_empty = true;
    }
    if let Some(mask) = c.optional_tensor(mask_name)? {
        can_be_empty = true;
        scores = match mask.ty {
            ScalarType::Bool => mask.tensor.select(&scores, &c.cx.f(f64::NEG_INFINITY)),
            _ => scores + mask.tensor,
        };
    }
    let weights = scores.softmax(-1);
    let weights = if can_be_empty {
        // A row whose keys are all masked has weights 0.
        let none = scores.max(scores.rank() - 1).equal(f64::NEG_INFINITY);
        none.select(&c.cx.f(0.0), &weights)
    } else {
        weights
    };
    Ok(weights.matmul(&v))
}

/// Repeats each head until there are `heads` heads; copies of a head are adjacent.
fn repeated(c: &Call<'_>, x: &Tensor, heads: &Size) -> Lowered<Tensor> {
    let own = c.cx.shape(x);
    let axis = own.len() - 3;
    if own[axis] == *heads {
        return Ok(x.clone());
    }
    let times = c.cx.quotient(heads, &own[axis])?;
    let mut shape = own.clone();
    shape.insert(axis + 1, 1.into());
    let wide = c.cx.reshape(x, &shape)?;
    shape[axis + 1] = times;
    let wide = c.cx.expand(&wide, &shape)?;
    let mut merged = own;
    merged[axis] = heads.clone();
    c.cx.reshape(&wide, &merged)
}
