//! Attention and related operators.

use super::Many;
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const MANY: Many = &[
    ("Attention", attention),
    ("RotaryEmbedding", |n| {
        let (x, cos, sin) = (n.x()?, n.array(1)?, n.array(2)?);
        Ok(vec![rotated(n, &x, [cos, sin], n.optional(3)?, &Rotation::of(n))?.into()])
    }),
    ("LinearAttention", linear),
];

/// Splits heads into a separate axis: `[batch, heads, sequence, width]`.
pub(super) fn heads(n: &Node<'_>, x: &Tensor, count: i64) -> Lowered<Tensor> {
    let shape = n.cx.shape(x);
    if shape.len() == 4 {
        return Ok(x.clone());
    }
    let [batch, sequence, width] = shape.as_slice() else { return Fault::program("attention of other axes") };
    if count < 1 {
        return Fault::program("attention without a number of heads");
    }
    let each = n.cx.quotient(width, &count.into())?;
    Ok(n.cx.reshape(x, &[batch.clone(), sequence.clone(), count.into(), each])?.transpose(1, 2))
}

/// The inverse of [`heads`].
pub(super) fn merged(n: &Node<'_>, x: &Tensor) -> Lowered<Tensor> {
    let shape = n.cx.shape(x);
    let [batch, heads, sequence, width] = shape.as_slice() else { return Fault::program("attention of other axes") };
    n.cx.reshape(&x.transpose(1, 2), &[batch.clone(), sequence.clone(), heads.times(width)])
}

/// Checks that a tensor has four axes.
pub(super) fn four(x: &Array) -> Lowered<()> {
    if x.rank() == 4 { Ok(()) } else { Fault::program("attention of other axes") }
}

/// Repeats each head until there are `to` heads; copies of a head are adjacent.
pub(super) fn repeated(n: &Node<'_>, x: &Tensor, to: &Size) -> Lowered<Tensor> {
    let mut shape = n.cx.shape(x);
    if shape.len() != 4 {
        return Fault::program("attention of other axes");
    }
    if shape[1] == *to {
        return Ok(x.clone());
    }
    let times = n.cx.quotient(to, &shape[1])?;
    shape[1] = to.clone();
    let index = vec![coord(0), coord(1).binary(BinaryOp::Div, n.cx.index(&times)?), coord(2), coord(3)];
    n.cx.remap(x, &shape, index, None, &[])
}

/// A bias added to attention scores, and a mask of the scores to keep.
#[derive(Default)]
pub(super) struct Mask {
    bias: Option<Tensor>,
    keeps: Option<Tensor>,
}

impl Mask {
    /// A mask that keeps all scores.
    pub fn of(bias: Option<Tensor>) -> Self {
        Self { bias, keeps: None }
    }

    pub fn keep(&mut self, other: Tensor) {
        self.keeps = Some(self.keeps.take().map_or_else(|| other.clone(), |own| own.and(&other)));
    }

    pub fn applied(&self, n: &Node<'_>, scores: &Tensor) -> Tensor {
        let sum = self.bias.as_ref().map_or_else(|| scores.clone(), |bias| scores + bias);
        self.keeps.as_ref().map_or_else(|| sum.clone(), |keeps| keeps.select(&sum, &n.cx.f(f64::NEG_INFINITY)))
    }
}

fn attention(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let [q, k, v] = [n.array(0)?, n.array(1)?, n.array(2)?];
    let ty = q.ty;
    let is_flat = q.rank() == 3;
    let (own, others) = (n.int("q_num_heads", 0), n.int("kv_num_heads", 0));
    let queries = heads(n, &n.f32(&q), own)?;
    let (mut keys, mut values) = (heads(n, &n.f32(&k), others)?, heads(n, &n.f32(&v), others)?);
    let mut past = Size::default();
    if let (Some(key), Some(value)) = (n.optional(4)?, n.optional(5)?) {
        four(&key)?;
        four(&value)?;
        past = n.shape(&key)[2].clone();
        keys = n.cx.concat(&[n.f32(&key), keys], 2);
        values = n.cx.concat(&[n.f32(&value), values], 2);
    }
    let present = [n.stored(&keys, k.ty)?, n.stored(&values, v.ty)?];
    let shape = n.cx.shape(&queries);
    let [keys, values] = [repeated(n, &keys, &shape[1])?, repeated(n, &values, &shape[1])?];
    let total = n.cx.extent(&keys, 2);
    let scale = match n.attribute("scale") {
        Some(_) => n.cx.f(n.float("scale", 1.0)),
        None => n.number(&shape[3])?.cast(DType::F32).rsqrt(),
    };
    let mut scores = queries.matmul(&keys.transpose(-1, -2)) * scale;
    let plain = scores.clone();
    let softcap = n.float("softcap", 0.0);
    if softcap > 0.0 {
        scores = (scores / softcap).tanh() * softcap;
    }
    let capped = scores.clone();
    let mask = mask_of(n, &shape, &total, &past)?;
    let biased = mask.applied(n, &scores);
    let weights = biased.softmax(-1);
    let y = weights.matmul(&values);
    let y = if is_flat { merged(n, &y)? } else { y };
    let matrix = match n.int("qk_matmul_output_mode", 0) {
        0 => plain,
        1 => capped,
        2 => biased,
        _ => weights,
    };
    let [key, value] = present;
    Ok(vec![n.stored(&y, ty)?.into(), key.into(), value.into(), n.stored(&matrix, ty)?.into()])
}

/// The mask of an `Attention` node: combines its mask input, the causal mask, and the lengths of samples.
fn mask_of(n: &Node<'_>, shape: &[Size], total: &Size, past: &Size) -> Lowered<Mask> {
    let mut mask = Mask::default();
    if let Some(given) = n.optional(3)? {
        let mut own = n.shape(&given);
        let last = own.len().checked_sub(1).ok_or_else(|| Fault::Program("a mask without axes".to_owned()))?;
        let mut tensor = given.tensor.clone();
        let is_bool = given.ty == ScalarType::Bool;
        if own[last] != *total && own[last].as_const() != Some(1) {
            own[last] = total.clone();
            let beyond = if is_bool { n.cx.scope.scalar(DType::Bool, 0i64) } else { n.cx.f(f64::NEG_INFINITY) };
            tensor = n.cx.remap(&tensor, &own, (0..=last).map(coord).collect(), Some(&beyond), &[])?;
        }
        match is_bool {
            true => mask.keep(tensor),
            false => mask.bias = Some(tensor),
        }
    }
    let matrix = [shape[2].clone(), total.clone()];
    if n.is("is_causal") {
        let rows = n.cx.positions(&matrix, 0)? + n.number(past)?;
        mask.keep(rows.ge(&n.cx.positions(&matrix, 1)?));
    }
    if let Some(lengths) = n.optional(6)? {
        let lengths = n.cx.cast(&lengths, ScalarType::I64).tensor;
        let lengths = n.cx.reshape(&lengths, &[shape[0].clone(), 1.into(), 1.into(), 1.into()])?;
        mask.keep(n.cx.positions(&matrix, 1)?.lt(&lengths));
    }
    Ok(mask)
}

/// Options of rotary embedding.
pub(super) struct Rotation {
    /// Number of heads of tensors with three axes; 0 to derive it from the caches.
    pub heads: i64,
    /// Number of rotated elements per head; 0 for all.
    pub width: i64,
    pub is_interleaved: bool,
}

impl Rotation {
    /// The attributes of a `RotaryEmbedding` node.
    pub fn of(n: &Node<'_>) -> Self {
        let (heads, width) = (n.int("num_heads", 0), n.int("rotary_embedding_dim", 0));
        Self { heads, width, is_interleaved: n.is("interleaved") }
    }
}

/// Rotary embedding: rotates pairs of a head's elements by the angles of their positions.
pub(super) fn rotated(
    n: &Node<'_>,
    x: &Array,
    caches: [Array; 2],
    positions: Option<Array>,
    rotation: &Rotation,
) -> Lowered<Array> {
    let shape = n.shape(x);
    let is_flat = shape.len() == 3;
    let own = n.f32(x);
    let own = match is_flat {
        true => {
            let count = match rotation.heads {
                0 => {
                    let half = n.extents(&caches[0])?.last().copied().unwrap_or(1) as i64;
                    let width = shape[2].as_const().unwrap_or(0);
                    width / (2 * half).max(1)
                }
                count => count,
            };
            heads(n, &own, count)?
        }
        false => own,
    };
    let all = n.cx.shape(&own);
    let width = all[3].as_extent().ok_or_else(|| Fault::Unsupported("heads of symbolic width".to_owned()))?;
    let turned = usize::try_from(rotation.width).unwrap_or(0);
    let turned = if turned == 0 { width } else { turned };
    if turned > width || turned % 2 != 0 {
        return Fault::program("RotaryEmbedding: a width that no head has");
    }
    let half = Size::from(turned / 2);
    let factor = |cache: &Array| -> Lowered<Tensor> {
        let cache = n.f32(cache);
        let rows = match &positions {
            Some(positions) => cache.gather(&positions.tensor),
            None => cache,
        };
        let shape = [all[0].clone(), all[2].clone(), half.clone()];
        let rows = if n.cx.shape(&rows).len() == 2 { n.cx.expand(&rows, &shape)? } else { rows };
        n.cx.unsqueeze(&rows, 1)
    };
    let (cos, sin) = (factor(&caches[0])?, factor(&caches[1])?);
    let is_interleaved = rotation.is_interleaved;
    let part = |odd: i64| -> Lowered<Tensor> {
        let mut shape = all.clone();
        shape[3] = half.clone();
        let place = match is_interleaved {
            true => coord(3).binary(BinaryOp::Mul, 2i64).binary(BinaryOp::Add, odd),
            false => coord(3).binary(BinaryOp::Add, odd * (turned as i64 / 2)),
        };
        n.cx.remap(&own, &shape, vec![coord(0), coord(1), coord(2), place], None, &[])
    };
    let (first, second) = (part(0)?, part(1)?);
    let (real, imaginary) = (&cos * &first - &sin * &second, &sin * &first + &cos * &second);
    let mut y = if is_interleaved {
        let pair = [n.cx.unsqueeze(&real, 4)?, n.cx.unsqueeze(&imaginary, 4)?];
        let mut shape = all.clone();
        shape[3] = turned.into();
        n.cx.reshape(&n.cx.concat(&pair, 4), &shape)?
    } else {
        n.cx.concat(&[real, imaginary], 3)
    };
    if turned < width {
        let rest = n.cx.slice(&own, 3, (&turned.into(), 1), &(width - turned).into())?;
        y = n.cx.concat(&[y, rest], 3);
    }
    n.stored(&if is_flat { merged(n, &y)? } else { y }, x.ty)
}

/// Maximum number of unrolled steps.
const MAX_STEPS: usize = 1 << 10;

/// Linear attention: a state of keys and values is updated step by step.
fn linear(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let [q, k, v] = [n.array(0)?, n.array(1)?, n.array(2)?];
    let (own, others) = (n.int("q_num_heads", 0), n.int("kv_num_heads", 0));
    let [queries, keys, values] =
        [heads(n, &n.f32(&q), own)?, heads(n, &n.f32(&k), others)?, heads(n, &n.f32(&v), others)?];
    let shape = n.cx.shape(&keys);
    let steps = shape[2].as_extent().filter(|&steps| steps <= MAX_STEPS);
    let steps = steps
        .ok_or_else(|| Fault::Unsupported("a sequence of symbolic length, or of more than 1024 steps".to_owned()))?;
    let rule = n.text("update_rule", "gated_delta");
    let (is_gated, is_delta) = (rule.starts_with("gated"), rule.ends_with("delta"));
    let width = n.cx.extent(&values, 3);
    let past = n.optional(3)?;
    let state_type = past.as_ref().map_or(q.ty, |past| past.ty);
    let mut state = match past {
        Some(past) => n.f32(&past),
        None => n.cx.expand(&n.cx.f(0.0), &[shape[0].clone(), others.into(), shape[3].clone(), width])?,
    };
    // By head; the last axis has one element, or one per element of a key.
    let per_head = |place: usize| -> Lowered<Tensor> {
        let x = n.array(place)?;
        let last = n.shape(&x).last().cloned().unwrap_or_default();
        let count = if last.as_const() == Some(1) { 1 } else { others };
        heads(n, &n.f32(&x), count)
    };
    let decay = if is_gated { Some(per_head(4)?) } else { None };
    let beta = if is_delta { Some(per_head(5)?) } else { None };
    let scale = match n.float("scale", 0.0) {
        0.0 => n.number(&shape[3])?.cast(DType::F32).rsqrt(),
        scale => n.cx.f(scale),
    };
    let mut outputs = vec![];
    for step in 0..steps {
        let at = |x: &Tensor| n.cx.slice(x, 2, (&step.into(), 1), &1.into());
        let (query, key, mut value) = (at(&queries)?, at(&keys)?, at(&values)?);
        if let Some(decay) = &decay {
            state = state * at(decay)?.exp().transpose(2, 3);
        }
        if let Some(beta) = &beta {
            value = at(beta)? * (value - key.matmul(&state));
        }
        state = state + key.transpose(2, 3) * value;
        let read = repeated(n, &state, &own.into())?;
        outputs.push(query.matmul(&read) * &scale);
    }
    let y = if outputs.len() == 1 { outputs.remove(0) } else { n.cx.concat(&outputs, 2) };
    Ok(vec![n.stored(&merged(n, &y)?, q.ty)?.into(), n.stored(&state, state_type)?.into()])
}
