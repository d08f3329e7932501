//! Transformer operators that ONNX Runtime's exporters and optimizers write.

use super::Many;
use super::attention::{Mask, Rotation, four, heads, merged, repeated, rotated};
use super::norm::layer;
use super::quantized::{product_of, scaled};
use super::scatter::cached;
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::{DType, Tensor};

pub(super) const MANY: Many = &[
    ("com.microsoft.Attention", |n| {
        let y = n.f32(&n.x()?).matmul(&n.f32(&n.array(1)?));
        projected(n, &biased(n, y, 2)?, 3, 4)
    }),
    ("com.microsoft.EmbedLayerNormalization", embedded),
    ("com.microsoft.GroupQueryAttention", grouped),
    ("com.microsoft.MultiHeadAttention", multi_head),
    ("com.microsoft.QAttention", |n| {
        let y = scaled(n, &product_of(n, [0, 1], [6, 7])?, 3, 4)?;
        projected(n, &biased(n, y, 2)?, 5, 8)
    }),
    ("com.microsoft.RotaryEmbedding", |n| {
        let (x, positions, cos, sin) = (n.x()?, n.array(1)?, n.array(2)?, n.array(3)?);
        if n.float("scale", 1.0) != 1.0 || n.is("is_packed_batching") {
            return Fault::unsupported("scaled or packed positions");
        }
        let positions = match positions.rank() {
            2 => positions,
            _ => {
                let shape = n.shape(&x);
                let axis = shape.len().saturating_sub(2);
                let samples = [shape[0].clone(), shape[axis].clone()];
                let start = n.cx.reshape(&n.cx.cast(&positions, ScalarType::I64).tensor, &[])?;
                let tensor = n.cx.expand(&(n.cx.iota(&samples[1])? + start), &samples)?;
                Array { tensor, ty: ScalarType::I64 }
            }
        };
        Ok(vec![rotated(n, &x, [cos, sin], Some(positions), &Rotation::of(n))?.into()])
    }),
];

/// Adds the bias at an input, if the node has it.
fn biased(n: &Node<'_>, x: Tensor, place: usize) -> Lowered<Tensor> {
    Ok(match n.optional(place)? {
        Some(bias) => x + n.f32(&bias),
        None => x,
    })
}

/// Attention by head. `sink` is an additional score per head, which takes weight but has no value.
fn attend(n: &Node<'_>, [q, k, v]: [&Tensor; 3], mask: &Mask, sink: Option<&Tensor>) -> Lowered<Tensor> {
    let scale = match n.float("scale", 0.0) {
        0.0 => n.number(&n.cx.extent(q, 3))?.cast(DType::F32).rsqrt(),
        scale => n.cx.f(scale),
    };
    let mut scores = q.matmul(&k.transpose(-1, -2)) * scale;
    let softcap = n.float("softcap", 0.0);
    if softcap > 0.0 {
        scores = (scores / softcap).tanh() * softcap;
    }
    let scores = mask.applied(n, &scores);
    let weights = match sink {
        None => scores.softmax(-1),
        Some(sink) => {
            let mut shape = n.cx.shape(&scores);
            let keys = std::mem::replace(&mut shape[3], 1.into());
            let all = n.cx.concat(&[scores, n.cx.expand(sink, &shape)?], 3).softmax(-1);
            n.cx.slice(&all, 3, (&Size::default(), 1), &keys)?
        }
    };
    merged(n, &weights.matmul(v))
}

/// A bias of attention scores. Extents of 1 are broadcast.
fn score_bias(n: &Node<'_>, place: usize, scores: [&Size; 4]) -> Lowered<Option<Tensor>> {
    let Some(bias) = n.optional(place)? else { return Ok(None) };
    four(&bias)?;
    let own = n.shape(&bias).into_iter().zip(scores);
    let shape: Vec<Size> = own.map(|(own, size)| if own.as_const() == Some(1) { own } else { size.clone() }).collect();
    Ok(Some(n.f32(&n.resized(&bias, &shape)?)))
}

/// A large negative bias for masked keys. The mask input has lengths, first and last keys, or a flag per key.
fn key_bias(n: &Node<'_>, place: usize, [batch, _, rows, keys]: [&Size; 4]) -> Lowered<Option<Tensor>> {
    let Some(mask) = n.optional(place)? else { return Ok(None) };
    let shape = n.shape(&mask);
    let one = Size::from(1);
    let tensor = n.cx.cast(&mask, ScalarType::I64).tensor;
    let per_sample = |x: &Tensor| n.cx.reshape(x, &[batch.clone(), 1.into(), 1.into(), 1.into()]);
    let keeps = match shape.len() {
        1 => {
            let places = n.cx.iota(keys)?;
            let is_double = shape[0] == batch.times(&2.into());
            let ends = if is_double { n.cx.slice(&tensor, 0, (&Size::default(), 1), batch)? } else { tensor.clone() };
            let inside = places.lt(&per_sample(&ends)?);
            match is_double {
                true => inside.and(&places.ge(&per_sample(&n.cx.slice(&tensor, 0, (batch, 1), batch)?)?)),
                false => inside,
            }
        }
        2 => n.cx.reshape(&tensor, &[batch.clone(), one.clone(), one, keys.clone()])?.not_equal(0i64),
        3 => n.cx.reshape(&tensor, &[batch.clone(), one, rows.clone(), keys.clone()])?.not_equal(0i64),
        _ => return Fault::unsupported("a mask of other axes"),
    };
    Ok(Some(keeps.select(&n.cx.f(0.0), &n.cx.f(n.float("mask_filter_value", -10000.0)))))
}

/// Adds two optional biases.
fn sum(a: Option<Tensor>, b: Option<Tensor>) -> Option<Tensor> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

/// The mask of a node whose keys may include keys of a past.
fn mask_of(n: &Node<'_>, q: &Tensor, k: &Tensor, [keys, scores]: [usize; 2]) -> Lowered<Mask> {
    let (shape, total) = (n.cx.shape(q), n.cx.extent(k, 2));
    let all = [&shape[0], &shape[1], &shape[2], &total];
    let mut mask = Mask::of(sum(key_bias(n, keys, all)?, score_bias(n, scores, all)?));
    if n.is("unidirectional") {
        let matrix = [shape[2].clone(), total];
        let past = n.number(&matrix[1].minus(&matrix[0]))?;
        mask.keep((n.cx.positions(&matrix, 0)? + past).ge(&n.cx.positions(&matrix, 1)?));
    }
    Ok(mask)
}

/// Splits the last axis into three slices of these widths.
fn parts(n: &Node<'_>, x: &Tensor, widths: &[Size; 3]) -> Lowered<[Tensor; 3]> {
    let axis = x.rank().saturating_sub(1);
    let mut start = Size::default();
    let mut next = |width: &Size| {
        let part = n.cx.slice(x, axis, (&start, 1), width);
        start = start.plus(width);
        part
    };
    Ok([next(&widths[0])?, next(&widths[1])?, next(&widths[2])?])
}

/// Attention whose queries, keys and values are slices of one tensor: `[batch, sequence, queries + keys + values]`.
fn projected(n: &Node<'_>, x: &Tensor, mask: usize, past: usize) -> Lowered<Vec<Item>> {
    if n.is("do_rotary") || n.is("past_present_share_buffer") || x.rank() != 3 {
        return Fault::unsupported("rotated heads, or a past in the room of the present");
    }
    let third = n.cx.quotient(&n.cx.extent(x, 2), &3.into())?;
    let widths = match n.ints("qkv_hidden_sizes").as_deref() {
        None | Some([]) => [third.clone(), third.clone(), third],
        Some(&[q, k, v]) => [q.into(), k.into(), v.into()],
        Some(_) => return Fault::program(format!("{}: qkv_hidden_sizes are not three", n.op)),
    };
    let count = n.int("num_heads", 0);
    let [q, k, v] = parts(n, x, &widths)?;
    let (q, mut k, mut v) = (heads(n, &q, count)?, heads(n, &k, count)?, heads(n, &v, count)?);
    if let Some(past) = n.optional(past)? {
        if past.rank() != 5 {
            return Fault::program(format!("{}: a past of other axes", n.op));
        }
        let past = n.f32(&past);
        k = n.cx.concat(&[n.cx.select(&past, 0, &0.into())?, k], 2);
        v = n.cx.concat(&[n.cx.select(&past, 0, &1.into())?, v], 2);
    }
    let mask = mask_of(n, &q, &k, [mask, past + 1])?;
    let y = attend(n, [&q, &k, &v], &mask, None)?;
    let ty = if n.array(0)?.ty.is_float() { n.array(0)?.ty } else { ScalarType::F32 };
    let mut results = vec![n.stored(&y, ty)?.into()];
    if n.gives(1) {
        let present = n.cx.concat(&[n.cx.unsqueeze(&k, 0)?, n.cx.unsqueeze(&v, 0)?], 0);
        results.push(n.stored(&present, ty)?.into());
    }
    Ok(results)
}

/// Queries, keys and values; they may be packed by head: `[batch, sequence, heads, 2 or 3, width]`.
fn unpacked(n: &Node<'_>) -> Lowered<[Tensor; 3]> {
    let q = n.x()?;
    let part = |x: &Array, place: i64| {
        let own = n.cx.select(&n.f32(x), 3, &place.into())?;
        let shape = n.cx.shape(&own);
        n.cx.reshape(&own, &[shape[0].clone(), shape[1].clone(), shape[2].times(&shape[3])])
    };
    match (q.rank(), n.optional(1)?, n.optional(2)?) {
        (5, None, None) if !n.has(3) => Ok([part(&q, 0)?, part(&q, 1)?, part(&q, 2)?]),
        (3, Some(both), None) if both.rank() == 5 && !n.has(3) => Ok([n.f32(&q), part(&both, 0)?, part(&both, 1)?]),
        (3, Some(k), Some(v)) if matches!((k.rank(), v.rank()), (3, 3) | (4, 4)) => Ok([&q, &k, &v].map(|x| n.f32(x))),
        _ => Fault::unsupported("operands of other axes, or packed ones with a bias"),
    }
}

/// Attention with separate queries, keys and values.
fn multi_head(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let (ty, count) = (n.x()?.ty, n.int("num_heads", 0));
    if n.has(8) {
        return Fault::unsupported("a past in the room of the present");
    }
    let mut operands = unpacked(n)?;
    if let Some(bias) = n.optional(3)? {
        let width = n.cx.extent(&operands[0], 2);
        let last = n.shape(&bias).first().cloned().unwrap_or_default().minus(&width.times(&2.into()));
        let own = parts(n, &n.f32(&bias), &[width.clone(), width, last])?;
        for (x, own) in operands.iter_mut().zip(own).filter(|(x, _)| x.rank() == 3) {
            *x = &*x + own;
        }
    }
    let [q_heads, mut keys, mut values] =
        [heads(n, &operands[0], count)?, heads(n, &operands[1], count)?, heads(n, &operands[2], count)?];
    if let (Some(key), Some(value)) = (n.optional(6)?, n.optional(7)?) {
        keys = n.cx.concat(&[n.f32(&key), keys], 2);
        values = n.cx.concat(&[n.f32(&value), values], 2);
    }
    let mask = mask_of(n, &q_heads, &keys, [4, 5])?;
    let y = attend(n, [&q_heads, &keys, &values], &mask, None)?;
    Ok(vec![n.stored(&y, ty)?.into(), n.stored(&keys, ty)?.into(), n.stored(&values, ty)?.into()])
}

/// Causal attention with fewer heads of keys and values. New keys and values are written to a cache at the length of each sample.
fn grouped(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let x = n.x()?;
    let (own, others) = (n.int("num_heads", 0), n.int("kv_num_heads", 0));
    let is_quantized = ["k_quant_type", "v_quant_type"].iter().any(|name| n.text(name, "NONE") != "NONE");
    if x.rank() != 3 || own < 1 || others < 1 || is_quantized {
        return Fault::unsupported("quantized caches, or no heads");
    }
    let shape = n.shape(&x);
    let (batch, rows) = (&shape[0], &shape[1]);
    let operands = match (n.optional(1)?, n.optional(2)?) {
        (Some(k), Some(v)) => {
            let like = |x: &Array| n.resized(x, &[batch.clone(), rows.clone(), n.cx.extent(&x.tensor, 2)]);
            [n.f32(&x), n.f32(&like(&k)?), n.f32(&like(&v)?)]
        }
        _ => {
            let each = n.cx.quotient(&shape[2], &(own + 2 * others).into())?;
            let [q, k] = [own, others].map(|count| each.times(&count.into()));
            parts(n, &n.f32(&x), &[q, k.clone(), k])?
        }
    };
    let lengths = n.cx.cast(&n.array(5)?, ScalarType::I64).tensor;
    let lengths = n.cx.reshape(&lengths, std::slice::from_ref(batch))? + 1i64;
    // In the first run samples have no past, regardless of their length.
    let starts = (&lengths - n.number(rows)?).maximum(0i64);
    let [q, k, v] = [heads(n, &operands[0], own)?, heads(n, &operands[1], others)?, heads(n, &operands[2], others)?];
    let [q, k] = if n.is("do_rotary") { [turned(n, &q, &starts)?, turned(n, &k, &starts)?] } else { [q, k] };
    let [k, v] = [present(n, 3, &k, &starts)?, present(n, 4, &v, &starts)?];
    let total = n.cx.extent(&k, 2);
    let shape = n.cx.shape(&q);
    let mut mask = Mask::of(score_bias(n, 10, [batch, &shape[1], rows, &total])?);
    let matrix = [rows.clone(), total];
    let per_sample = |x: &Tensor| n.cx.reshape(x, &[batch.clone(), 1.into(), 1.into(), 1.into()]);
    let last = n.cx.positions(&matrix, 0)? + per_sample(&starts)?;
    let places = n.cx.positions(&matrix, 1)?;
    mask.keep(last.ge(&places).and(&places.lt(&per_sample(&lengths)?)));
    let window = n.int("local_window_size", -1);
    if window > 0 {
        mask.keep(places.gt(&(&last - window)));
    }
    let sink = match n.optional(11)? {
        Some(sink) => Some(n.cx.reshape(&n.f32(&sink), &[own.into(), 1.into(), 1.into()])?),
        None => n.is("smooth_softmax").then(|| n.cx.f(0.0)),
    };
    let all = [repeated(n, &k, &shape[1])?, repeated(n, &v, &shape[1])?];
    let y = attend(n, [&q, &all[0], &all[1]], &mask, sink.as_ref())?;
    Ok(vec![n.stored(&y, x.ty)?.into(), n.stored(&k, x.ty)?.into(), n.stored(&v, x.ty)?.into()])
}

/// Rotary embedding of heads by their positions, which are an input or continue after the past.
fn turned(n: &Node<'_>, x: &Tensor, starts: &Tensor) -> Lowered<Tensor> {
    let (cos, sin) = (n.array(7)?, n.array(8)?);
    let half = n.extents(&cos)?.last().copied().unwrap_or(0) as i64;
    let rotation = Rotation { heads: 0, width: 2 * half, is_interleaved: n.is("rotary_interleaved") };
    let positions = match n.optional(9)? {
        Some(positions) => positions,
        None => {
            let tensor = n.cx.iota(&n.cx.extent(x, 2))? + n.cx.unsqueeze(starts, 1)?;
            Array { tensor, ty: ScalarType::I64 }
        }
    };
    let x = Array { tensor: x.clone(), ty: ScalarType::F32 };
    Ok(rotated(n, &x, [cos, sin], Some(positions), &rotation)?.tensor)
}

/// A cache with past rows, new rows and zeros. It has the length of the past cache if all rows fit, otherwise as many rows as
/// necessary.
fn present(n: &Node<'_>, place: usize, new: &Tensor, starts: &Tensor) -> Lowered<Tensor> {
    let Some(past) = n.optional(place)? else { return Ok(new.clone()) };
    four(&past)?;
    let (mut shape, own) = (n.cx.shape(new), n.shape(&past)[2].clone());
    let total = n.item(6).whole().and_then(|whole| whole.values.first().cloned());
    shape[2] = match (total, own.as_const()) {
        (None, _) => own.plus(&shape[2]),
        (Some(total), Some(room)) => match total.as_const() {
            Some(total) => total.max(room).into(),
            None => own,
        },
        (Some(total), None) => total,
    };
    let past = n.f32(&past);
    let past = n.cx.remap(&past, &shape, (0..4).map(coord).collect(), Some(&n.cx.f(0.0)), &[])?;
    let own = n.cx.reshape(starts, &[shape[0].clone(), 1.into(), 1.into(), 1.into()])?;
    let past = n.cx.positions(&shape, 2)?.lt(&own).select(&past, &n.cx.f(0.0));
    cached(n, &past, new, 2, starts, false)
}

/// Normalized sums of word, position and segment embeddings, and the lengths of samples.
fn embedded(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let ids = n.x()?;
    let shape = n.shape(&ids);
    let [batch, length] = shape.as_slice() else {
        return Fault::program("EmbedLayerNormalization: words of other axes");
    };
    let mut x = n.f32(&n.array(2)?).gather(&ids.tensor);
    let places = match n.optional(8)? {
        Some(places) => places.tensor,
        None => n.cx.iota(length)?,
    };
    x = x + n.f32(&n.array(3)?).gather(&places);
    if let (Some(segments), Some(table)) = (n.optional(1)?, n.optional(4)?) {
        x = x + n.f32(&table).gather(&segments.tensor);
    }
    let lengths = match n.optional(7)? {
        Some(mask) => {
            let kept = n.cx.cast(&mask, ScalarType::I64).tensor.not_equal(0i64);
            let count = kept.cast(DType::F32).sum(1);
            n.cast(&n.cx.reshape(&count, std::slice::from_ref(batch))?, ScalarType::I32).tensor
        }
        None => n.cx.expand(&n.cx.scope.scalar(DType::I32, 0i64), std::slice::from_ref(batch))?,
    };
    let sum = Array { tensor: x, ty: ScalarType::F32 };
    let y = layer(n, &sum, n.array(5)?, n.optional(6)?, 2, n.float("epsilon", 1e-12))?;
    let lengths = Array { tensor: lengths, ty: ScalarType::I32 };
    Ok(vec![y.into(), lengths.into(), sum.into()])
}
