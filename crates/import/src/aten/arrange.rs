//! Operators that stack, split and arrange tensors along axes implied by the operator's name.

use super::movement::common_list;
use super::scan::prefix_sum;
use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::coord;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.dstack", |c| {
        let parts = common_list(c)?;
        let deep = |x: &Tensor| match x.rank() {
            0 => c.cx.reshape(x, &[1.into(), 1.into(), 1.into()]),
            1 => c.cx.reshape(x, &[1.into(), c.cx.extent(x, 0), 1.into()]),
            2 => c.cx.unsqueeze(x, 2),
            _ => Ok(x.clone()),
        };
        c.result(&c.cx.concat(&parts.iter().map(deep).collect::<Lowered<Vec<_>>>()?, 2))
    }),
    ("aten.cartesian_prod", cartesian_product),
    ("aten.vander", vander),
    ("aten.trapezoid", trapezoid),
    ("aten.cumulative_trapezoid", cumulative_trapezoid),
    ("aten.trapz", trapezoid),
    ("aten.masked_scatter", masked_scatter),
    ("aten.as_strided", strided),
    ("aten.as_strided_copy", strided),
];

pub(super) const MANY: Many = &[
    ("aten.hsplit", |c| split(c, |rank| usize::from(rank > 1))),
    ("aten.vsplit", |c| split(c, |_| 0)),
    ("aten.dsplit", |c| split(c, |_| 2)),
];

fn split(c: &Call<'_>, axis: fn(usize) -> usize) -> Lowered<Vec<Value>> {
    let x = c.x()?;
    let (axis, mut start) = (axis(x.rank()), Size::default());
    let mut part = |output: usize| {
        let len = c.shape(output)?.get(axis).cloned().ok_or_else(|| Fault::Program(format!("{}: axes", c.base)))?;
        let tensor = c.cx.slice(&x.tensor, axis, (&start, 1), &len)?;
        start = start.plus(&len);
        Ok(Array { tensor, ty: x.ty }.into())
    };
    Ok(vec![Value::List((0..c.declared.len()).map(&mut part).collect::<Lowered<_>>()?)])
}

/// A strided view of a tensor whose elements are in row-major order.
fn strided(c: &Call<'_>) -> Lowered<Array> {
    let (x, shape) = (c.x()?, c.shape(0)?);
    let (strides, start) = (c.ints("stride")?, c.int_or("storage_offset", 0)?);
    let count = Size::product(&c.cx.shape(&x.tensor));
    let (mut place, mut last) = (IndexExpr::Int(start), Size::from(start));
    for (axis, (&stride, extent)) in strides.iter().zip(&shape).enumerate() {
        place = place.binary(BinaryOp::Add, coord(axis).binary(BinaryOp::Mul, stride));
        last = last.plus(&extent.minus(&1.into()).times(&stride.into()));
    }
    let is_inside = c.cx.sizes.borrow().bounds(&count.minus(&last)).0 > 0;
    if !is_inside || start < 0 || strides.iter().any(|stride| *stride < 0) {
        return Fault::unsupported("elements beyond those of the tensor");
    }
    let flat = c.cx.reshape(&x.tensor, &[count])?;
    Ok(Array { tensor: c.cx.remap(&flat, &shape, vec![place], None, &[])?, ty: x.ty })
}

/// All combinations of elements as rows. Elements of the last vector vary fastest.
fn cartesian_product(c: &Call<'_>) -> Lowered<Array> {
    let parts = common_list(c)?;
    let shape: Vec<Size> = parts.iter().map(|x| c.cx.extent(x, 0)).collect();
    if parts.len() < 2 {
        return c.result(parts.first().ok_or_else(|| Fault::Program("cartesian_prod of nothing".to_owned()))?);
    }
    let column = |(axis, x): (usize, &Tensor)| {
        let grid = c.cx.remap(x, &shape, vec![coord(axis)], None, &[])?;
        c.cx.reshape(&grid, &[Size::product(&shape), 1.into()])
    };
    let columns = parts.iter().enumerate().map(column).collect::<Lowered<Vec<_>>>()?;
    c.result(&c.cx.concat(&columns, 1))
}

/// Maximum number of powers of a vector's elements.
const MOST_POWERS: usize = 64;

fn vander(c: &Call<'_>) -> Lowered<Array> {
    let x = c.cx.unsqueeze(&c.cx.cast(&c.x()?, c.ty(0)?).tensor, 1)?;
    let count = c.shape(0)?.last().and_then(Size::as_extent).filter(|count| (1..=MOST_POWERS).contains(count));
    let count = count.ok_or_else(|| Fault::Unsupported("powers whose number is not known".to_owned()))?;
    let one = if x.dtype().is_float() { c.cx.f(1.0) } else { c.cx.scope.scalar(x.dtype(), 1i64) };
    let mut powers = vec![c.cx.expand(&one, &c.cx.shape(&x))?];
    for n in 1..count {
        powers.push(&powers[n - 1] * &x);
    }
    if !c.bool_or("increasing", false)? {
        powers.reverse();
    }
    c.result(&c.cx.concat(&powers, 1))
}

fn trapezoid(c: &Call<'_>) -> Lowered<Array> {
    let (parts, axis) = trapezoids(c)?;
    c.result(&c.cx.squeeze(&parts.sum(axis), axis)?)
}

fn cumulative_trapezoid(c: &Call<'_>) -> Lowered<Array> {
    let (parts, axis) = trapezoids(c)?;
    c.result(&prefix_sum(c.cx, &Array { tensor: parts, ty: ScalarType::F32 }, axis)?)
}

/// Areas of the trapezoids between adjacent elements along an axis, and that axis.
fn trapezoids(c: &Call<'_>) -> Lowered<(Tensor, usize)> {
    let y = c.cx.cast(&c.tensor("y")?, c.ty(0)?).tensor;
    let axis = c.axis_or("dim", -1, y.rank())?;
    let len = c.cx.extent(&y, axis).minus(&1.into());
    let sides = |x: &Tensor, axis: usize| -> Lowered<[Tensor; 2]> {
        Ok([c.cx.slice(x, axis, (&Size::default(), 1), &len)?, c.cx.slice(x, axis, (&1.into(), 1), &len)?])
    };
    let [left, right] = sides(&y, axis)?;
    let mean = (left + right) * 0.5;
    let parts = match c.optional_tensor("x")? {
        None => mean * c.float_or("dx", 1.0)?,
        Some(x) if x.rank() == 1 => {
            let [left, right] = sides(&c.cx.cast(&x, ScalarType::F32).tensor, 0)?;
            let mut along = vec![Size::from(1); y.rank() - axis];
            along[0] = len.clone();
            mean * c.cx.reshape(&(right - left), &along)?
        }
        Some(_) => return Fault::unsupported("places that are not a vector"),
    };
    Ok((parts, axis))
}

/// Writes the elements of `source`, in order, to the positions where the mask is true.
fn masked_scatter(c: &Call<'_>) -> Lowered<Array> {
    let (x, source) = (c.x()?, c.tensor("source")?);
    let shape = c.cx.shape(&x.tensor);
    let flat = |x: &Tensor| c.cx.reshape(x, &[Size::product(&c.cx.shape(x))]);
    let mask = flat(&c.cx.expand(&c.tensor("mask")?.tensor, &shape)?)?;
    let places = prefix_sum(c.cx, &Array { tensor: mask.clone(), ty: ScalarType::Bool }, 0)?.cast(DType::I64) - 1i64;
    let taken = flat(&source.tensor)?.gather(&places);
    c.result(&c.cx.reshape(&mask.select(&taken, &flat(&x.tensor)?), &shape)?)
}
