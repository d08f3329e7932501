//! Pooling.

use super::conv::{Sliding, spread};
use super::reduce::limit;
use super::scatter::scattered;
use super::{Many, One};
use crate::array::Array;
use crate::call::Call;
use crate::context::{Context, coord};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.max_pool1d", max_pool),
    ("aten.max_pool2d", max_pool),
    ("aten.max_pool3d", max_pool),
    ("aten.avg_pool1d", avg_pool),
    ("aten.avg_pool2d", avg_pool),
    ("aten.avg_pool3d", avg_pool),
    ("aten.adaptive_avg_pool1d", adaptive_avg_pool),
    ("aten.adaptive_avg_pool2d", adaptive_avg_pool),
    ("aten.adaptive_avg_pool3d", adaptive_avg_pool),
    ("aten._adaptive_avg_pool2d", adaptive_avg_pool),
    ("aten._adaptive_avg_pool3d", adaptive_avg_pool),
    ("aten.max_unpool2d", max_unpool),
    ("aten.max_unpool3d", max_unpool),
];

pub(super) const MANY: Many = &[
    ("aten.max_pool1d_with_indices", max_pool_indices),
    ("aten.max_pool2d_with_indices", max_pool_indices),
    ("aten.max_pool3d_with_indices", max_pool_indices),
    ("aten.adaptive_max_pool1d", adaptive_max_pool),
    ("aten.adaptive_max_pool2d", adaptive_max_pool),
    ("aten.adaptive_max_pool3d", adaptive_max_pool),
];

/// The sliding window of a pooling operator.
fn sliding(c: &Call<'_>) -> Lowered<Sliding> {
    let digit = c.base.chars().rev().find_map(|digit| digit.to_digit(10)).unwrap_or(2);
    let rank = if c.base.contains("1d") {
        1
    } else if c.base.contains("3d") {
        3
    } else {
        digit as usize
    };
    let kernel = spread(c.ints("kernel_size")?, rank)?;
    let stride = c.ints_or("stride", &[])?;
    let stride = if stride.is_empty() { kernel.clone() } else { spread(stride, rank)? };
    let padding = spread(c.ints_or("padding", &[0])?, rank)?;
    let dilation = spread(c.ints_or("dilation", &[1])?, rank)?;
    Ok(Sliding { kernel, stride, padding, dilation })
}

/// The elements of all windows: the axes of the result, followed by axes within the window.
struct Windows {
    values: Tensor,
    /// The axes within the window.
    axes: Vec<usize>,
    /// The shape of the result.
    shape: Vec<Size>,
    /// Number of axes before the spatial ones.
    outer: usize,
}

impl Windows {
    /// The windows for a result of this shape. Elements beyond the border are `fill`.
    fn of(cx: &Context, x: &Tensor, window: &Sliding, shape: Vec<Size>, fill: &Tensor) -> Lowered<Self> {
        let rank = window.kernel.len();
        let outer = shape.len() - rank;
        let axes: Vec<usize> = (shape.len()..shape.len() + rank).collect();
        let kernel = window.kernel.iter().map(|&extent| Size::from(extent));
        let all: Vec<Size> = shape.iter().cloned().chain(kernel).collect();
        let spatial = (0..rank).map(|axis| window.place(axis, coord(outer + axis), coord(axes[axis])));
        let index: Vec<IndexExpr> = (0..outer).map(coord).chain(spatial).collect();
        let values = cx.remap(x, &all, index, Some(fill), &[])?;
        Ok(Self { values, axes, shape, outer })
    }

    fn reduced(&self, c: &Call<'_>, x: &Tensor) -> Lowered<Tensor> {
        c.cx.reshape(x, &self.shape)
    }
}

/// How the elements of a window are reduced.
#[derive(Clone, Copy)]
pub(crate) enum Combine {
    Sum,
    Max,
}

/// Maximum number of elements of a window that are combined one by one in the loop over windows.
const MOST_IN_LOOP: i64 = 32;

/// The sum or maximum of each window. Elements beyond the border are 0 or negative infinity.
pub(crate) fn combined(
    cx: &Context,
    x: &Tensor,
    window: &Sliding,
    shape: &[Size],
    combine: Combine,
) -> Lowered<Tensor> {
    let fill = cx.f(match combine {
        Combine::Sum => 0.0,
        Combine::Max => f64::NEG_INFINITY,
    });
    let count = window.kernel.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent));
    let Some(count @ 1..=MOST_IN_LOOP) = count else {
        let windows = Windows::of(cx, x, window, shape.to_vec(), &fill)?;
        let y = windows.axes.iter().rev().fold(windows.values.clone(), |x, &axis| match combine {
            Combine::Sum => x.sum(axis),
            Combine::Max => x.max(axis),
        });
        return cx.reshape(&y, shape);
    };
    let outer = shape.len() - window.kernel.len();
    let mut y: Option<Tensor> = None;
    for flat in 0..count {
        let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
        let mut rest = flat;
        for (axis, &extent) in window.kernel.iter().enumerate().rev() {
            index[outer + axis] = window.place(axis, coord(outer + axis), IndexExpr::Int(rest % extent));
            rest /= extent;
        }
        let element = cx.remap(x, shape, index, Some(&fill), &[])?;
        y = Some(match (y, combine) {
            (None, _) => element,
            (Some(y), Combine::Sum) => y + element,
            (Some(y), Combine::Max) => y.maximum(element),
        });
    }
    y.ok_or_else(|| Fault::Program("a window without elements".to_owned()))
}

fn floats(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    if x.ty.is_float() { Ok(x) } else { Fault::unsupported("integers") }
}

fn largest(windows: &Windows) -> Tensor {
    windows.axes.iter().rev().fold(windows.values.clone(), |x, &axis| x.max(axis))
}

fn max_pool(c: &Call<'_>) -> Lowered<Array> {
    c.result(&combined(c.cx, &floats(c)?.tensor, &sliding(c)?, &c.shape(0)?, Combine::Max)?)
}

fn max_pool_indices(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let (x, window) = (floats(c)?, sliding(c)?);
    let windows = Windows::of(c.cx, &x.tensor, &window, c.shape(0)?, &c.cx.f(f64::NEG_INFINITY))?;
    let most = largest(&windows);
    let own = c.cx.shape(&x.tensor);
    limit(c.cx, &Size::product(&own[windows.outer..]), 1 << 24, "a pooled plane")?;
    // The flat index of every element in its plane. Elements beyond the border have no index.
    let all = c.cx.shape(&windows.values);
    let (mut flat, mut inside): (Option<Tensor>, Option<Tensor>) = (None, None);
    for axis in 0..window.kernel.len() {
        let start = c.cx.positions(&all, windows.outer + axis)? * window.stride[axis] - window.padding[axis];
        let place = start + c.cx.positions(&all, windows.axes[axis])? * window.dilation[axis];
        let extent =
            c.cx.number(&crate::value::Number::Int(own[windows.outer + axis].clone()), crate::ScalarType::I64)?;
        let within = place.ge(0i64).and(place.lt(&extent.tensor));
        flat = Some(flat.map_or_else(|| place.clone(), |flat| flat * &extent.tensor + &place));
        inside = Some(inside.map_or_else(|| within.clone(), |inside| inside.and(&within)));
    }
    let (Some(flat), Some(inside)) = (flat, inside) else { return Fault::program("a window without axes") };
    let hits = windows.values.equal(&most).or(c.cx.is_nan(&windows.values)).and(&inside);
    let places = hits.select(&flat.cast(DType::F32), &c.cx.f(f64::INFINITY));
    let first = windows.axes.iter().rev().fold(places, |x, &axis| x.min(axis)).cast(DType::I64);
    Ok(vec![c.nth(0, &windows.reduced(c, &most)?)?, c.nth(1, &windows.reduced(c, &first)?)?])
}

fn avg_pool(c: &Call<'_>) -> Lowered<Array> {
    let (x, window) = (floats(c)?, sliding(c)?);
    let shape = c.shape(0)?;
    let sum = combined(c.cx, &x.tensor, &window, &shape, Combine::Sum)?;
    if c.has("divisor_override") {
        return c.result(&(sum / c.float("divisor_override")?));
    }
    let counts_padding = c.bool_or("count_include_pad", true)?;
    let own = c.cx.shape(&x.tensor);
    let mut count: Option<Tensor> = None;
    for axis in 0..window.kernel.len() {
        let (kernel, padding) = (window.kernel[axis], window.padding[axis]);
        let along = shape.len() - window.kernel.len() + axis;
        let extent = c.cx.number(&crate::value::Number::Int(own[along].clone()), crate::ScalarType::I64)?.tensor;
        let start = c.cx.positions(&shape, along)? * window.stride[axis] - padding;
        let end = (&start + kernel).minimum(&(&extent + padding));
        let own = match counts_padding {
            true => end - start,
            false => end.minimum(&extent) - start.maximum(0i64),
        };
        let own = own.cast(DType::F32);
        count = Some(count.map_or_else(|| own.clone(), |count| count * &own));
    }
    let count = count.ok_or_else(|| Fault::Program("a window without axes".to_owned()))?;
    c.result(&(sum / count))
}

/// Writes elements to the positions in their planes that max pooling returned.
fn max_unpool(c: &Call<'_>) -> Lowered<Array> {
    let (x, places, shape) = (c.x()?, c.tensor("indices")?, c.shape(0)?);
    let outer = x.rank().saturating_sub(c.sizes("output_size")?.len());
    let flat = |shape: &[Size]| [&shape[..outer], &[Size::product(&shape[outer..])]].concat();
    let own = flat(&c.cx.shape(&x.tensor));
    let zeros = Array { tensor: c.cx.expand(&c.cx.zero(&x.tensor), &flat(&shape))?, ty: x.ty };
    let index = Array { tensor: c.cx.reshape(&places.tensor, &own)?, ty: places.ty };
    let source = Array { tensor: c.cx.reshape(&x.tensor, &own)?, ty: x.ty };
    let y = scattered(c, zeros, outer, index, source)?;
    c.result(&c.cx.reshape(&y.tensor, &shape)?)
}

/// Whether element `j` of an axis belongs to position `i` of the result, `[positions, elements]`.
fn adaptive_members(c: &Call<'_>, places: &Size, elements: &Size) -> Lowered<Tensor> {
    let shape = [places.clone(), elements.clone()];
    let (row, column) = (c.cx.positions(&shape, 0)?, c.cx.positions(&shape, 1)?);
    let number =
        |size: &Size| Ok(c.cx.number(&crate::value::Number::Int(size.clone()), crate::ScalarType::I64)?.tensor);
    let (count, extent) = (number(places)?, number(elements)?);
    let start = &row * &extent / &count;
    let end = ((&row + 1i64) * &extent + &count - 1i64) / &count;
    Ok(column.ge(&start).and(column.lt(&end)))
}

/// The spatial axes of an adaptive pooling operator.
fn adaptive_axes(c: &Call<'_>, rank: usize) -> Lowered<std::ops::Range<usize>> {
    let spatial = if c.base.contains("1d") {
        1
    } else if c.base.contains("3d") {
        3
    } else {
        2
    };
    let first = rank.checked_sub(spatial).ok_or_else(|| Fault::Program("too few axes".to_owned()))?;
    Ok(first..rank)
}

/// The axis expanded to the members of every position, and the mask of members.
fn adaptive(c: &Call<'_>, x: &Tensor, axis: usize, places: &Size) -> Lowered<(Tensor, Tensor)> {
    let mut shape = c.cx.shape(x);
    let members = adaptive_members(c, places, &shape[axis])?;
    shape.insert(axis, 1.into());
    let values = c.cx.reshape(x, &shape)?;
    let mut along = vec![places.clone(), shape[axis + 1].clone()];
    along.resize(shape.len() - axis, 1.into());
    Ok((values, c.cx.reshape(&members, &along)?))
}

fn adaptive_avg_pool(c: &Call<'_>) -> Lowered<Array> {
    let (x, shape) = (floats(c)?, c.shape(0)?);
    let mut y = x.tensor.clone();
    for axis in adaptive_axes(c, x.rank())? {
        if shape[axis].as_const() == Some(1) {
            y = y.mean(axis);
            continue;
        }
        if shape[axis] == c.cx.extent(&y, axis) {
            continue;
        }
        let (values, members) = adaptive(c, &y, axis, &shape[axis])?;
        let sum = members.select(&values, &c.cx.f(0.0)).sum(axis + 1);
        let count = members.cast(DType::F32).sum(1);
        y = c.cx.squeeze(&(sum / count), axis + 1)?;
    }
    c.result(&y)
}

fn adaptive_max_pool(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let (x, shape) = (floats(c)?, c.shape(0)?);
    let axes = adaptive_axes(c, x.rank())?;
    let own = c.cx.shape(&x.tensor);
    limit(c.cx, &Size::product(&own[axes.clone()]), 1 << 24, "a pooled plane")?;
    // Reduces axes from the last to the first, and tracks the flat index of the first maximum.
    let mut flat: Option<Tensor> = None;
    for axis in axes.clone() {
        let place = c.cx.positions(&own, axis)?.cast(DType::F32);
        let extent = c.cx.number(&crate::value::Number::Int(own[axis].clone()), crate::ScalarType::F32)?.tensor;
        flat = Some(flat.map_or_else(|| place.clone(), |flat| flat * extent + &place));
    }
    let flat = flat.ok_or_else(|| Fault::Program("a window without axes".to_owned()))?;
    let (mut y, mut places) = (x.tensor.clone(), c.cx.expand(&flat, &own)?);
    for axis in axes.rev() {
        let (values, members) = adaptive(c, &y, axis, &shape[axis])?;
        let (own_places, _) = adaptive(c, &places, axis, &shape[axis])?;
        let kept = members.select(&values, &c.cx.f(f64::NEG_INFINITY));
        let most = kept.max(axis + 1);
        let hits = members.and(values.equal(&most).or(c.cx.is_nan(&values)));
        let first = hits.select(&own_places, &c.cx.f(f64::INFINITY)).min(axis + 1);
        (y, places) = (c.cx.squeeze(&most, axis + 1)?, c.cx.squeeze(&first, axis + 1)?);
    }
    Ok(vec![c.nth(0, &y)?, c.nth(1, &places.cast(DType::I64))?])
}
