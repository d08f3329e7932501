//! Sorting: an element's rank is the number of elements before it.

use super::reduce::limit;
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered, Number, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.argsort", |c| {
        let x = c.x()?;
        let axis = c.axis_or("dim", -1, x.rank())?;
        c.result(&sorted(c.cx, &x, axis, c.bool_or("descending", false)?)?)
    }),
    ("aten.msort", |c| {
        let x = c.x()?;
        let index = sorted(c.cx, &x, 0, false)?;
        c.result(&along(c.cx, &x.tensor, 0, &index)?)
    }),
    ("aten.quantile.scalar", quantile),
    ("aten.median", |c| {
        let x = c.x()?;
        let flat = c.cx.reshape(&x.tensor, &[Size::product(&c.cx.shape(&x.tensor))])?;
        let (value, _) = ranked(c, &Array { tensor: flat, ty: x.ty }, 0, None)?;
        c.result(&c.cx.squeeze(&value, 0)?)
    }),
];

pub(super) const MANY: Many = &[
    ("aten.sort", |c| {
        let x = c.x()?;
        let axis = c.axis_or("dim", -1, x.rank())?;
        let index = sorted(c.cx, &x, axis, c.bool_or("descending", false)?)?;
        Ok(vec![c.nth(0, &along(c.cx, &x.tensor, axis, &index)?)?, c.nth(1, &index)?])
    }),
    ("aten.topk", topk),
    ("aten.median.dim", |c| {
        let x = c.x()?;
        let axis = c.axis("dim", x.rank())?;
        let (value, index) = ranked(c, &x, axis, None)?;
        both(c, [value, index], axis)
    }),
    ("aten.kthvalue", |c| {
        let x = c.x()?;
        let axis = c.axis_or("dim", -1, x.rank())?;
        let place = c.size("k")?.minus(&1.into());
        let (value, index) = ranked(c, &x, axis, Some(place))?;
        both(c, [value, index], axis)
    }),
];

/// Between the two elements in order that are nearest to the place `q (n - 1)`.
fn quantile(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let (x, axis) = match c.has("dim") {
        true => (x.clone(), c.axis("dim", x.rank())?),
        false => {
            let flat = c.cx.reshape(&x.tensor, &[Size::product(&c.cx.shape(&x.tensor))])?;
            (Array { tensor: flat, ty: x.ty }, 0)
        }
    };
    if x.rank() == 0 || c.string_or("interpolation", "linear")? != "linear" {
        return Fault::unsupported("a tensor without axes, or another interpolation");
    }
    let index = sorted(c.cx, &x, axis, false)?;
    let values = along(c.cx, &x.tensor, axis, &index)?;
    let last = Number::Int(c.cx.extent(&x.tensor, axis).minus(&1.into()));
    let place = c.cx.number(&last, ScalarType::F32)?.tensor * c.float("q")?;
    let (floor, last) = (place.floor(), c.cx.number(&last, ScalarType::I64)?.tensor);
    let mut one = c.cx.shape(&values);
    one[axis] = 1.into();
    let taken = |index: Tensor| along(c.cx, &values, axis, &c.cx.expand(&index, &one)?);
    let first = floor.cast(DType::I64);
    let (low, high) = (taken(first.clone())?, taken((first + 1i64).minimum(&last))?);
    let y = &low + (high - &low) * (place - floor);
    let nan = c.cx.is_nan(&x.tensor).cast(DType::F32).max(axis).gt(0.5);
    let y = nan.select(&c.cx.f(f64::NAN), &y);
    let is_kept = c.bool_or("keepdim", false)? && c.shape(0)?.len() == y.rank();
    c.result(&if is_kept { y } else { c.cx.reshape(&y, &c.shape(0)?)? })
}

fn both(c: &Call<'_>, results: [Tensor; 2], axis: usize) -> Lowered<Vec<Value>> {
    let kept = c.bool_or("keepdim", false)?;
    let results = results.iter().enumerate().map(|(output, x)| {
        let x = if kept || c.shape(output)?.len() == x.rank() { x.clone() } else { c.cx.squeeze(x, axis)? };
        c.nth(output, &x)
    });
    results.collect()
}

/// Elements of an axis by their positions in it.
pub(super) fn along(cx: &Context, x: &Tensor, axis: usize, index: &Tensor) -> Lowered<Tensor> {
    if x.rank() == 0 {
        return Ok(x.clone());
    }
    let shape = cx.shape(index);
    let mut places: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
    places[axis] = IndexExpr::Load { operand: 1, index: (0..x.rank()).map(coord).collect() };
    cx.remap(x, &shape, places, None, &[index])
}

/// The positions of the elements in order, an `I64`; of equal ones the first comes first. NaN is the largest.
fn sorted(cx: &Context, x: &Array, axis: usize, is_descending: bool) -> Lowered<Tensor> {
    if x.rank() == 0 {
        return Ok(cx.scalar(0.0, ScalarType::I64)?.tensor);
    }
    let extent = cx.extent(&x.tensor, axis);
    first_sorted(cx, x, axis, is_descending, &extent)
}

/// The positions of the first `k` elements in order.
fn first_sorted(cx: &Context, x: &Array, axis: usize, is_descending: bool, k: &Size) -> Lowered<Tensor> {
    let values = if x.ty == ScalarType::Bool { x.tensor.cast(DType::F32) } else { x.tensor.clone() };
    let mut shape = cx.shape(&values);
    limit(cx, &shape[axis], 1 << 24, "an axis that is sorted")?;
    // Rows stand in the place of the axis, the elements they are compared with follow.
    shape.insert(axis, 1.into());
    let other = cx.reshape(&values, &shape)?;
    shape.swap(axis, axis + 1);
    let own = cx.reshape(&values, &shape)?;
    shape[axis + 1] = shape[axis].clone();
    let (row, column) = (cx.positions(&shape, axis)?, cx.positions(&shape, axis + 1)?);
    let mut before = if is_descending { other.gt(&own) } else { other.lt(&own) };
    let mut equal = other.equal(&own);
    if x.ty.is_float() {
        let (own_nan, other_nan) = (cx.is_nan(&own), cx.is_nan(&other));
        let differs = if is_descending { other_nan.and(own_nan.not()) } else { own_nan.and(other_nan.not()) };
        before = before.or(differs);
        equal = equal.or(own_nan.and(&other_nan));
    }
    let before = before.or(equal.and(column.lt(&row)));
    let rank = before.cast(DType::F32).sum(axis + 1).cast(DType::I64);
    // The element of rank n, for every n.
    let mut across = cx.shape(&rank);
    across.swap(axis, axis + 1);
    let rank = cx.reshape(&rank, &across)?;
    across[axis] = k.clone();
    let hits = rank.equal(&cx.positions(&across, axis)?);
    let places = cx.positions(&across, axis + 1)?.cast(DType::F32);
    let index = hits.select(&places, &cx.f(0.0)).sum(axis + 1).cast(DType::I64);
    cx.squeeze(&index, axis + 1)
}

fn topk(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Ok(vec![x.into(), c.cx.scalar(0.0, ScalarType::I64)?.into()]);
    }
    let axis = c.axis_or("dim", -1, x.rank())?;
    let index = first_sorted(c.cx, &x, axis, c.bool_or("largest", true)?, &c.size("k")?)?;
    Ok(vec![c.nth(0, &along(c.cx, &x.tensor, axis, &index)?)?, c.nth(1, &index)?])
}

/// The element of a rank along an axis and its position, both with extent 1; the lower median if no rank is given.
fn ranked(c: &Call<'_>, x: &Array, axis: usize, rank: Option<Size>) -> Lowered<(Tensor, Tensor)> {
    if x.rank() == 0 {
        return Fault::unsupported("a tensor without axes");
    }
    let is_median = rank.is_none();
    let rank = match rank {
        Some(rank) => rank,
        None => c.cx.quotient(&c.cx.extent(&x.tensor, axis).minus(&1.into()), &2.into())?,
    };
    let index = sorted(c.cx, x, axis, false)?;
    let mut index = c.cx.slice(&index, axis, (&rank, 1), &1.into())?;
    if is_median && x.ty.is_float() {
        // NaN is the median of what holds it.
        let nan = c.cx.is_nan(&x.tensor);
        let found = super::reduce::first(c.cx, &nan, axis)?;
        let any = nan.cast(DType::F32).max(axis).gt(0.5);
        index = any.select(&found, &index);
    }
    Ok((along(c.cx, &x.tensor, axis, &index)?, index))
}
