//! Cumulative operators.

use super::reduce::{bounded_sum, doublings, extreme, limit, magnitude};
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::{Context, coord};
use crate::value::{Lowered, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One =
    &[("aten.cumsum", cumsum), ("aten.cumprod", cumprod), ("aten.logcumsumexp", logcumsumexp), ("aten.diff", diff)];

pub(super) const MANY: Many =
    &[("aten.cummax", |c| cumulative_extreme(c, true)), ("aten.cummin", |c| cumulative_extreme(c, false))];

/// A tensor whose axis is repeated as rows, and a mask of the columns up to each row.
///
/// Rows take the place of the axis; columns are the next axis.
struct Triangle {
    columns: Tensor,
    keeps: Tensor,
}

impl Triangle {
    fn of(cx: &Context, x: &Tensor, axis: usize) -> Lowered<Self> {
        let mut shape = cx.shape(x);
        shape.insert(axis, 1.into());
        let columns = cx.reshape(x, &shape)?;
        shape[axis] = shape[axis + 1].clone();
        let keeps = cx.positions(&shape, axis)?.ge(&cx.positions(&shape, axis + 1)?);
        Ok(Self { columns, keeps })
    }

    /// The tensor where the mask is true, otherwise `other`.
    fn select(&self, other: &Tensor) -> Tensor {
        self.keeps.select(&self.columns, other)
    }
}

fn cumsum(c: &Call<'_>) -> Lowered<Array> {
    let (x, ty) = (c.x()?, c.ty(0)?);
    if x.rank() == 0 {
        return Ok(c.cx.cast(&x, ty));
    }
    let axis = c.axis("dim", x.rank())?;
    let x = if ty.is_float() || x.ty.is_float() { c.cx.cast(&x, ty) } else { x };
    c.result(&prefix_sum(c.cx, &x, axis)?)
}

/// Maximum extent of an axis that is summed by a triangle, whose size is quadratic. Longer axes are summed in blocks of [`BLOCK`].
const MOST_IN_TRIANGLE: usize = 1 << 10;

const BLOCK: i64 = 1 << 6;

/// For each element the sum of all elements up to it; as `I64` for integers.
pub(super) fn prefix_sum(cx: &Context, x: &Array, axis: usize) -> Lowered<Tensor> {
    let x = cx.as_bools(x);
    bounded_prefix_sum(cx, &x, magnitude(&x), axis)
}

/// [`prefix_sum`] of floats, or of integers bounded by [`magnitude`].
fn bounded_prefix_sum(cx: &Context, x: &Array, magnitude: u32, axis: usize) -> Lowered<Tensor> {
    let extent = cx.extent(&x.tensor, axis);
    let most = cx.sizes.borrow().most(&extent);
    if most.is_some_and(|most| most <= MOST_IN_TRIANGLE) {
        triangle_sum(cx, x, magnitude, axis)
    } else {
        sum_of_blocks(cx, x, magnitude, axis)
    }
}

/// Prefix sums within blocks, plus the sum of all earlier blocks.
fn sum_of_blocks(cx: &Context, x: &Array, magnitude: u32, axis: usize) -> Lowered<Tensor> {
    let own = cx.shape(&x.tensor);
    let mut shape = own.clone();
    shape[axis] = cx.quotient(&own[axis].plus(&(BLOCK - 1).into()), &BLOCK.into())?;
    shape.insert(axis + 1, BLOCK.into());
    let mut place: Vec<IndexExpr> = (0..shape.len()).filter(|other| *other != axis + 1).map(coord).collect();
    place[axis] = coord(axis).binary(BinaryOp::Mul, BLOCK).binary(BinaryOp::Add, coord(axis + 1));
    let blocks = cx.remap(&x.tensor, &shape, place, Some(&cx.zero(&x.tensor)), &[])?;
    let within = triangle_sum(cx, &Array { tensor: blocks, ty: x.ty }, magnitude, axis + 1)?;
    let totals = cx.slice(&within, axis + 1, (&(BLOCK - 1).into(), 1), &1.into())?;
    let ty = if x.ty.is_float() { x.ty } else { ScalarType::I64 };
    let totals = Array { tensor: totals, ty };
    let of_block = (magnitude + BLOCK.ilog2()).min(64);
    // Symbolic extents rarely have more blocks than a triangle can sum.
    let sums = match shape[axis].as_const() {
        Some(_) => bounded_prefix_sum(cx, &totals, of_block, axis)?,
        None => triangle_sum(cx, &totals, of_block, axis)?,
    };
    let shape = cx.shape(&totals.tensor);
    let mut previous: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
    previous[axis] = coord(axis).binary(BinaryOp::Sub, 1i64);
    let before = cx.remap(&sums, &shape, previous, Some(&cx.zero(&sums)), &[])?;
    let mut back: Vec<IndexExpr> = (0..own.len()).map(coord).collect();
    back[axis] = coord(axis).binary(BinaryOp::Div, BLOCK);
    back.insert(axis + 1, coord(axis).binary(BinaryOp::Mod, BLOCK));
    cx.remap(&(within + before), &own, back, None, &[])
}

fn triangle_sum(cx: &Context, x: &Array, magnitude: u32, axis: usize) -> Lowered<Tensor> {
    let triangle = Triangle::of(cx, &x.tensor, axis)?;
    if x.ty.is_float() {
        return cx.squeeze(&triangle.select(&cx.f(0.0)).sum(axis + 1), axis + 1);
    }
    let kept = match x.ty {
        ScalarType::Bool => triangle.keeps.and(&triangle.columns),
        _ => triangle.select(&cx.zero(&x.tensor)),
    };
    cx.squeeze(&bounded_sum(cx, &kept, magnitude, &[axis + 1])?, axis + 1)
}

/// By doubling: after step n each element is the product of the last 2^n elements up to it.
fn cumprod(c: &Call<'_>) -> Lowered<Array> {
    let x = c.cx.cast(&c.x()?, c.ty(0)?).tensor;
    if x.rank() == 0 {
        return c.result(&x);
    }
    let axis = c.axis("dim", x.rank())?;
    let shape = c.cx.shape(&x);
    let steps = doublings(c.cx, &shape[axis], "a cumulative product")?;
    let one = c.cx.scope.scalar(if x.dtype().is_float() { DType::F32 } else { x.dtype() }, 1i64);
    let mut y = x;
    for step in 0..steps {
        let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
        index[axis] = coord(axis).binary(BinaryOp::Sub, 1i64 << step);
        let before = c.cx.remap(&y, &shape, index, Some(&one), &[])?;
        y = y * before;
    }
    c.result(&y)
}

fn logcumsumexp(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Ok(x);
    }
    let axis = c.axis("dim", x.rank())?;
    let triangle = Triangle::of(c.cx, &x.tensor, axis)?;
    let kept = triangle.select(&c.cx.f(f64::NEG_INFINITY));
    let largest = kept.max(axis + 1);
    let finite = largest.abs().lt(f64::INFINITY).select(&largest, &c.cx.f(0.0));
    let sums = (kept - &finite).exp().sum(axis + 1).log() + finite;
    c.result(&c.cx.squeeze(&sums, axis + 1)?)
}

fn cumulative_extreme(c: &Call<'_>, is_max: bool) -> Lowered<Vec<Value>> {
    let x = c.x()?;
    if x.rank() == 0 {
        return Ok(vec![x.into(), c.cx.scalar(0.0, ScalarType::I64)?.into()]);
    }
    let axis = c.axis("dim", x.rank())?;
    limit(c.cx, &c.cx.extent(&x.tensor, axis), 1 << 24, "a search")?;
    let triangle = Triangle::of(c.cx, &x.tensor, axis)?;
    // Outside the triangle use the first element, which is part of every row.
    let first = c.cx.slice(&triangle.columns, axis + 1, (&0.into(), 1), &1.into())?;
    let kept = Array { tensor: triangle.select(&first), ty: x.ty };
    let best = extreme(c.cx, &kept, &[axis + 1], is_max)?;
    let mut hits = triangle.columns.equal(&best);
    if x.ty.is_float() {
        hits = hits.or(c.cx.is_nan(&triangle.columns).and(c.cx.is_nan(&best)));
    }
    let shape = c.cx.shape(&hits);
    let places = c.cx.positions(&shape, axis + 1)?.cast(DType::F32);
    let last = triangle.keeps.and(hits).select(&places, &c.cx.f(-1.0)).max(axis + 1).cast(DType::I64);
    Ok(vec![c.nth(0, &c.cx.squeeze(&best, axis + 1)?)?, c.nth(1, &c.cx.squeeze(&last, axis + 1)?)?])
}

fn diff(c: &Call<'_>) -> Lowered<Array> {
    let mut y = c.x()?;
    let axis = c.axis_or("dim", -1, y.rank())?;
    let ends = [c.optional_tensor("prepend")?, Some(y.clone()), c.optional_tensor("append")?];
    let parts: Vec<Tensor> = ends.into_iter().flatten().map(|part| c.cx.cast(&part, y.ty).tensor).collect();
    y.tensor = c.cx.concat(&parts, axis);
    for _ in 0..c.int_or("n", 1)?.clamp(0, 64) {
        let less = c.cx.extent(&y.tensor, axis).minus(&1.into());
        let [after, before] = [1i64, 0].map(|start| c.cx.slice(&y.tensor, axis, (&start.into(), 1), &less));
        let (after, before) = (after?, before?);
        let tensor = if y.ty == ScalarType::Bool { after.not_equal(&before) } else { after - before };
        y = c.cx.stored(&tensor, y.ty)?;
    }
    Ok(y)
}
