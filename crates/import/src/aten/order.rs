//! Sorting, and operators based on it. The rank of an element is the number of elements before it.

use super::reduce::{extreme, limit};
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered, Number, Value};
use rewire_graph::op::{IndexExpr, MergeRuns, SortRuns};
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
    ("aten.nanmedian", |c| {
        let x = c.x()?;
        let flat = c.cx.reshape(&x.tensor, &[Size::product(&c.cx.shape(&x.tensor))])?;
        let (value, _) = median_without_nan(c.cx, &Array { tensor: flat, ty: x.ty }, 0)?;
        c.result(&c.cx.squeeze(&value, 0)?)
    }),
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
    ("aten.nanmedian.dim", |c| {
        let x = c.x()?;
        let axis = c.axis("dim", x.rank())?;
        let (value, index) = median_without_nan(c.cx, &x, axis)?;
        both(c, [value, index], axis)
    }),
    ("aten.mode", mode),
    ("aten.kthvalue", |c| {
        let x = c.x()?;
        let axis = c.axis_or("dim", -1, x.rank())?;
        let place = c.size("k")?.minus(&1.into());
        let (value, index) = ranked(c, &x, axis, Some(place))?;
        both(c, [value, index], axis)
    }),
];

/// Interpolates between the sorted elements next to position `q (n - 1)`.
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

/// The lower median of elements other than NaN, and its position. The median is NaN if all elements are NaN.
fn median_without_nan(cx: &Context, x: &Array, axis: usize) -> Lowered<(Tensor, Tensor)> {
    let index = sorted(cx, x, axis, false)?;
    let mut shape = cx.shape(&x.tensor);
    shape[axis] = 1.into();
    let middle = match x.ty.is_float() {
        true => ((cx.is_nan(&x.tensor).not().cast(DType::F32).sum(axis) - 1.0) * 0.5).floor().maximum(0.0),
        false => {
            let last = cx.extent(&x.tensor, axis).minus(&1.into());
            cx.number(&Number::Int(cx.quotient(&last, &2.into())?), ScalarType::F32)?.tensor
        }
    };
    let index = along(cx, &index, axis, &cx.expand(&middle.cast(DType::I64), &shape)?)?;
    Ok((along(cx, &x.tensor, axis, &index)?, index))
}

/// Maximum number of elements of an axis that are compared pairwise.
const MOST_COMPARED: usize = 1 << 12;

/// The most frequent element of an axis (the smallest one of several), and its last position.
fn mode(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let x = c.x()?;
    if x.rank() == 0 || x.ty.is_float() && x.ty.bits() < 32 || x.ty == ScalarType::I64 || x.ty == ScalarType::U64 {
        return Fault::unsupported("a tensor without axes, or of this type");
    }
    let axis = c.axis_or("dim", -1, x.rank())?;
    limit(c.cx, &c.cx.extent(&x.tensor, axis), MOST_COMPARED, "an axis whose mode is taken")?;
    let values = c.cx.cast(&x, ScalarType::I32.promote(x.ty)).tensor;
    let equal = c.cx.unsqueeze(&values, axis + 1)?.equal(&c.cx.unsqueeze(&values, axis)?);
    let frequency = c.cx.squeeze(&equal.cast(DType::F32).sum(axis + 1), axis + 1)?;
    let own = Array { tensor: values.clone(), ty: ScalarType::I32.promote(x.ty) };
    let is_most = frequency.equal(frequency.max(axis));
    let most = match x.ty.is_float() {
        true => c.cx.f(f64::INFINITY),
        false => extreme(c.cx, &own, &[axis], true)?,
    };
    let candidates = Array { tensor: is_most.select(&values, &most), ty: own.ty };
    let value = extreme(c.cx, &candidates, &[axis], false)?;
    let places = c.cx.positions(&c.cx.shape(&values), axis)?.cast(DType::F32);
    let hits = is_most.and(values.equal(&value));
    let index = hits.select(&places, &c.cx.f(-1.0)).max(axis).cast(DType::I64);
    both(c, [along(c.cx, &x.tensor, axis, &index)?, index], axis)
}

fn both(c: &Call<'_>, results: [Tensor; 2], axis: usize) -> Lowered<Vec<Value>> {
    let kept = c.bool_or("keepdim", false)?;
    let results = results.iter().enumerate().map(|(output, x)| {
        let x = if kept || c.shape(output)?.len() == x.rank() { x.clone() } else { c.cx.squeeze(x, axis)? };
        c.nth(output, &x)
    });
    results.collect()
}

/// Gathers elements of an axis by their positions.
pub(super) fn along(cx: &Context, x: &Tensor, axis: usize, index: &Tensor) -> Lowered<Tensor> {
    if x.rank() == 0 {
        return Ok(x.clone());
    }
    let shape = cx.shape(index);
    let mut places: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
    places[axis] = IndexExpr::Load { operand: 1, index: (0..x.rank()).map(coord).collect() };
    cx.remap(x, &shape, places, None, &[index])
}

/// The positions of the elements in sorted order, as `I64`. The sort is stable, and NaN is the largest value.
pub(super) fn sorted(cx: &Context, x: &Array, axis: usize, is_descending: bool) -> Lowered<Tensor> {
    if x.rank() == 0 {
        return Ok(cx.scalar(0.0, ScalarType::I64)?.tensor);
    }
    let extent = cx.extent(&x.tensor, axis);
    first_sorted(cx, x, axis, is_descending, &extent)
}

/// Maximum number of elements of an axis for sorting by counting ranks, whose comparisons can be fused with other kernels.
const MOST_COUNTED: usize = 32;

/// Maximum number of elements of an axis that can be sorted.
const MOST_SORTED: usize = 1 << 24;

/// The positions of the first `k` elements in sorted order.
fn first_sorted(cx: &Context, x: &Array, axis: usize, is_descending: bool, k: &Size) -> Lowered<Tensor> {
    let extent = cx.extent(&x.tensor, axis);
    if extent.as_extent().is_some_and(|extent| extent <= MOST_COUNTED) {
        return counted(cx, x, axis, is_descending, k);
    }
    limit(cx, &extent, MOST_SORTED, "an axis that is sorted")?;
    let keys = match x.ty {
        ScalarType::Bool => x.tensor.cast(DType::I32),
        // This offset maps unsigned to signed order.
        ScalarType::U64 => &x.tensor + i64::MIN,
        _ => x.tensor.clone(),
    };
    let last = x.rank() - 1;
    let keys = keys.transpose(axis, last);
    let mut shape = cx.shape(&keys);
    let rows = Size::product(&shape[..last]);
    let keys = cx.reshape(&keys, &[rows, extent.clone()])?;
    let mut order = cx.scope.apply(SortRuns { is_descending }, &[&keys]);
    let most = cx.sizes.borrow().most(&extent).unwrap_or(MOST_SORTED).min(MOST_SORTED);
    let mut run = SortRuns::LENGTH;
    while run < most {
        order = cx.scope.apply(MergeRuns { is_descending, run }, &[&keys, &order]);
        run *= MergeRuns::WAYS;
    }
    let order = cx.slice(&order.cast(DType::I64), 1, (&0.into(), 1), k)?;
    shape[last] = k.clone();
    Ok(cx.reshape(&order, &shape)?.transpose(axis, last))
}

/// Like [`first_sorted`], by counting for each element the elements before it.
fn counted(cx: &Context, x: &Array, axis: usize, is_descending: bool, k: &Size) -> Lowered<Tensor> {
    let values = if x.ty == ScalarType::Bool { x.tensor.cast(DType::F32) } else { x.tensor.clone() };
    let values = if x.ty == ScalarType::U64 { values + i64::MIN } else { values };
    let mut shape = cx.shape(&values);
    // The sorted axis becomes rows; the elements to compare with are the next axis.
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
    // For every n, selects the element of rank n.
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

/// The element of a rank along an axis and its position, both with extent 1. Without a rank, the lower median.
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
        // If any element is NaN, so is the median.
        let nan = c.cx.is_nan(&x.tensor);
        let found = super::reduce::first(c.cx, &nan, axis)?;
        let any = nan.cast(DType::F32).max(axis).gt(0.5);
        index = any.select(&found, &index);
    }
    Ok((along(c.cx, &x.tensor, axis, &index)?, index))
}
