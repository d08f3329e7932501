//! Indexing with tensors of indices.

use super::order::along;
use super::reduce::{float_sum, integer_sum};
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.embedding", embedding),
    ("aten.index_select", |c| {
        let (x, index) = (c.x()?, integers(&c.tensor("index")?)?);
        if x.rank() == 0 {
            return Ok(x);
        }
        let axis = c.axis("dim", x.rank())?;
        let mut shape = c.cx.shape(&x.tensor);
        let index = c.cx.reshape(&index, &[Size::product(&c.cx.shape(&index))])?;
        shape[axis] = c.cx.extent(&index, 0);
        let mut places: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
        places[axis] = IndexExpr::Load { operand: 1, index: vec![coord(axis)] };
        Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, places, None, &[&index])?, ty: x.ty })
    }),
    ("aten.gather", |c| {
        let (x, index) = (c.x()?, integers(&c.tensor("index")?)?);
        let axis = c.axis("dim", x.rank())?;
        Ok(Array { tensor: along(c.cx, &x.tensor, axis, &index)?, ty: x.ty })
    }),
    ("aten.take_along_dim", |c| {
        let (x, index) = (c.x()?, integers(&c.tensor("indices")?)?);
        if !c.has("dim") {
            let flat = c.cx.reshape(&x.tensor, &[Size::product(&c.cx.shape(&x.tensor))])?;
            let index = c.cx.reshape(&index, &[Size::product(&c.cx.shape(&index))])?;
            return Ok(Array { tensor: along(c.cx, &flat, 0, &index)?, ty: x.ty });
        }
        let axis = c.axis("dim", x.rank())?;
        let (mut own, mut other) = (c.cx.shape(&x.tensor), c.cx.shape(&index));
        let shape = c.shape(0)?;
        for n in (0..x.rank()).filter(|&n| n != axis) {
            own[n] = shape[n].clone();
            other[n] = shape[n].clone();
        }
        let (x_tensor, index) = (c.cx.expand(&x.tensor, &own)?, c.cx.expand(&index, &other)?);
        Ok(Array { tensor: along(c.cx, &x_tensor, axis, &index)?, ty: x.ty })
    }),
    ("aten.take", |c| {
        let (x, index) = (c.x()?, integers(&c.tensor("index")?)?);
        let size = Size::product(&c.cx.shape(&x.tensor));
        let flat = c.cx.reshape(&x.tensor, std::slice::from_ref(&size))?;
        let place = wrapped(c.cx, 1, (0..index.rank()).map(coord).collect(), &size)?;
        let shape = c.cx.shape(&index);
        Ok(Array { tensor: c.cx.remap(&flat, &shape, vec![place], None, &[&index])?, ty: x.ty })
    }),
    ("aten.index", advanced),
    ("aten._unsafe_index", advanced),
    ("aten.bucketize", |c| {
        let values = c.x()?;
        let boundaries = c.tensor("boundaries")?;
        found(c, &boundaries, &values)
    }),
    ("aten.searchsorted", |c| {
        if c.has("sorter") {
            return Fault::unsupported("searchsorted with a sorter");
        }
        let (boundaries, values) = (c.tensor("sorted_sequence")?, c.tensor("self")?);
        found(c, &boundaries, &values)
    }),
];

pub(super) const MANY: Many = &[
    ("aten.embedding_bag", embedding_bag),
    ("aten._embedding_bag", embedding_bag),
    ("aten._embedding_bag_forward_only", embedding_bag),
];

/// An integer tensor as an index.
pub(super) fn integers(x: &Array) -> Lowered<Tensor> {
    if x.ty.is_integer() { Ok(x.tensor.clone()) } else { Fault::unsupported(format!("an index of type {}", x.ty)) }
}

fn embedding(c: &Call<'_>) -> Lowered<Array> {
    let (weight, index) = (c.tensor("weight")?, integers(&c.tensor("indices")?)?);
    Ok(Array { tensor: weight.tensor.gather(&index), ty: weight.ty })
}

/// An index loaded from operand `operand`. Negative values count from the end of the axis.
pub(crate) fn wrapped(cx: &Context, operand: usize, index: Vec<IndexExpr>, extent: &Size) -> Lowered<IndexExpr> {
    let value = IndexExpr::Load { operand, index };
    let from_end = value.clone().binary(BinaryOp::Lt, 0i64).binary(BinaryOp::Mul, cx.index(extent)?);
    Ok(value.binary(BinaryOp::Add, from_end))
}

/// Indexing with optional index tensors, one per axis.
pub(super) struct Advanced {
    /// The index of each axis of the operand; `None` for an axis that is not indexed.
    pub indices: Vec<Option<Tensor>>,
    /// The shape that all indices broadcast to.
    pub shape: Vec<Size>,
    /// The axis of the result at which this shape begins.
    pub place: usize,
}

impl Advanced {
    pub fn of(c: &Call<'_>, rank: usize) -> Lowered<Self> {
        let mut indices = vec![];
        for index in c.optional_tensors("indices")? {
            indices.push(match index {
                None => None,
                Some(index) if matches!(index.ty, ScalarType::Bool | ScalarType::U8) => {
                    return Fault::unsupported("an index of bools, whose result has a size that depends on data");
                }
                Some(index) => Some(integers(&index)?),
            });
        }
        indices.resize(rank.max(indices.len()), None);
        let given: Vec<&Tensor> = indices.iter().flatten().collect();
        let shape = c.cx.broadcast_shape(&given)?;
        let indexed: Vec<usize> = (0..rank).filter(|&axis| indices[axis].is_some()).collect();
        let adjacent = indexed.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let place = if adjacent { indexed.first().copied().unwrap_or(0) } else { 0 };
        Ok(Self { indices, shape, place })
    }
}

fn advanced(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let by = Advanced::of(c, x.rank())?;
    let own = c.cx.shape(&x.tensor);
    let rest: Vec<Size> = (0..x.rank()).filter(|&n| by.indices[n].is_none()).map(|n| own[n].clone()).collect();
    let shape = [&rest[..by.place], by.shape.as_slice(), &rest[by.place..]].concat();
    let (mut loads, mut places, mut others) = (vec![], vec![], 0);
    for (axis, index) in by.indices.iter().enumerate() {
        let Some(index) = index else {
            places.push(coord(if others < by.place { others } else { others + by.shape.len() }));
            others += 1;
            continue;
        };
        let skipped = by.place + by.shape.len() - index.rank();
        let extents = c.cx.shape(index);
        let at = |(n, size): (usize, &Size)| {
            if size.as_const() == Some(1) { IndexExpr::Int(0) } else { coord(skipped + n) }
        };
        let at = extents.iter().enumerate().map(at).collect();
        loads.push(index);
        places.push(wrapped(c.cx, loads.len(), at, &own[axis])?);
    }
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, places, None, &loads)?, ty: x.ty })
}

/// For each value the number of boundaries below it, or below or equal to it.
fn found(c: &Call<'_>, boundaries: &Array, values: &Array) -> Lowered<Array> {
    let right = c.bool_or("right", false)? || c.string_or("side", "left")? == "right";
    let ty = boundaries.ty.promote(values.ty);
    let (boundaries, values) = (c.cx.cast(boundaries, ty).tensor, c.cx.cast(values, ty).tensor);
    let rank = values.rank();
    let value = c.cx.unsqueeze(&values, rank)?;
    let boundary = if boundaries.rank() > 1 { c.cx.unsqueeze(&boundaries, rank - 1)? } else { boundaries };
    let mut before = if right { boundary.le(&value) } else { boundary.lt(&value) };
    if ty.is_float() {
        // NaN sorts after all numbers.
        before = before.or(c.cx.is_nan(&value));
    }
    let count = integer_sum(c.cx, &Array { tensor: before, ty: ScalarType::Bool }, &[rank])?;
    c.result(&c.cx.squeeze(&count, rank)?.cast(c.ty(0)?.computed()))
}

/// The sum, mean or maximum of each bag of embeddings.
fn embedding_bag(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let (weight, indices) = (c.tensor("weight")?, integers(&c.tensor("indices")?)?);
    let (mode, padding) = (c.int_or("mode", 0)?, c.int_or("padding_idx", -1)?);
    let samples = c.optional_tensor("per_sample_weights")?;
    let given = if indices.rank() == 1 { Some(c.tensor("offsets")?) } else { None };
    let counts = |x: &Tensor| (padding >= 0).then(|| x.not_equal(padding));
    let rows = weight.tensor.gather(&indices);
    let rows = match &samples {
        Some(samples) => &rows * c.cx.unsqueeze(&samples.tensor, samples.rank())?,
        None => rows,
    };
    // Axes: bag, element, column.
    let (member, rows) = match &given {
        None => {
            let all = c.cx.expand(&c.cx.scope.scalar(DType::Bool, 1i64), &c.cx.shape(&indices))?;
            (counts(&indices).map_or_else(|| all.clone(), |counted| all.and(&counted)), rows)
        }
        Some(offsets) => {
            let member = members(c, &integers(offsets)?, &indices)?;
            let member = counts(&indices).map_or_else(|| member.clone(), |counted| member.and(&counted));
            (member, c.cx.unsqueeze(&rows, 0)?)
        }
    };
    let member = c.cx.unsqueeze(&member, 2)?;
    let reduced = match mode {
        0 => float_sum(&member.select(&rows, &c.cx.f(0.0)), &[1]),
        1 => {
            let count = float_sum(&member.cast(DType::F32), &[1]).maximum(1.0);
            float_sum(&member.select(&rows, &c.cx.f(0.0)), &[1]) / count
        }
        2 => {
            let most = member.select(&rows, &c.cx.f(f64::NEG_INFINITY)).max(1);
            let any = member.cast(DType::F32).max(1).gt(0.5);
            any.select(&most, &c.cx.f(0.0))
        }
        mode => return Fault::unsupported(format!("mode {mode}")),
    };
    let y = c.nth(0, &c.cx.squeeze(&reduced, 1)?)?;
    Ok(std::iter::once(y).chain((1..c.declared.len()).map(|_| Value::None)).collect())
}

/// Whether an element belongs to a bag, `[bags, elements]`.
fn members(c: &Call<'_>, offsets: &Tensor, indices: &Tensor) -> Lowered<Tensor> {
    let last = c.bool_or("include_last_offset", false)?;
    let (count, elements) = (c.cx.extent(offsets, 0), c.cx.extent(indices, 0));
    let bags = if last { count.minus(&1.into()) } else { count };
    let offsets = offsets.cast(DType::I64);
    let shape = [bags.clone(), elements.clone()];
    let places = c.cx.positions(&shape, 1)?;
    let total = c.cx.number(&crate::value::Number::Int(elements), ScalarType::I64)?.tensor;
    let part = |start: i64, fill: Option<&Tensor>| {
        let index = vec![coord(0).binary(BinaryOp::Add, start)];
        let x = c.cx.remap(&offsets, std::slice::from_ref(&bags), index, fill, &[])?;
        c.cx.unsqueeze(&x, 1)
    };
    let (start, end) = (part(0, None)?, part(1, if last { None } else { Some(&total) })?);
    Ok(places.ge(&start).and(places.lt(&end)))
}
