//! Images sampled at computed places, and other functions of vectors.

use super::One;
use super::binary::{computed, operand};
use super::reduce::{extreme, limit};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::coord;
use crate::size::Size;
use crate::value::{Fault, Lowered, Number};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("aten.grid_sampler", grid_sampler),
    ("aten.grid_sampler_2d", grid_sampler),
    ("aten.affine_grid_generator", affine_grid),
    ("aten.linalg_cross", |c| cross(c, c.int_or("dim", -1)?)),
    ("aten.cross", |c| {
        if !c.has("dim") {
            return Fault::unsupported("a cross product along the first axis of extent 3");
        }
        cross(c, c.int("dim")?)
    }),
    ("aten.isin", isin),
];

/// The extent of an axis as a float.
fn extent(c: &Call<'_>, size: &Size) -> Lowered<Tensor> {
    Ok(c.cx.number(&Number::Int(size.clone()), ScalarType::F32)?.tensor)
}

fn grid_sampler(c: &Call<'_>) -> Lowered<Array> {
    let (x, grid) = (c.x()?, c.tensor("grid")?);
    let (mode, padding) = (c.int_or("interpolation_mode", 0)?, c.int_or("padding_mode", 0)?);
    if x.rank() != 4 || mode > 1 || padding > 1 {
        return Fault::unsupported("volumes, bicubic interpolation or reflected borders");
    }
    let aligned = c.bool_or("align_corners", false)?;
    let shape = c.cx.shape(&x.tensor);
    // By axis of the image, the place as a float.
    let place = |axis: usize, component: i64| -> Lowered<Tensor> {
        let unit = c.cx.select(&grid.tensor, 3, &component.into())?;
        let size = extent(c, &shape[axis])?;
        let place = match aligned {
            true => (unit + 1.0) * 0.5 * (&size - 1.0),
            false => ((unit + 1.0) * &size - 1.0) * 0.5,
        };
        Ok(if padding == 1 { place.maximum(0.0).minimum(&(size - 1.0)) } else { place })
    };
    let (row, column) = (place(2, 1)?, place(3, 0)?);
    let result = c.shape(0)?;
    let tap = |row: &Tensor, column: &Tensor| -> Lowered<Tensor> {
        let (row, column) = (row.cast(DType::I64), column.cast(DType::I64));
        let load = |operand: usize| IndexExpr::Load { operand, index: vec![coord(0), coord(2), coord(3)] };
        let index = vec![coord(0), coord(1), load(2), load(3)];
        c.cx.remap(&x.tensor, &result, index, Some(&c.cx.f(0.0)), &[&row, &column])
    };
    if mode == 1 {
        return c.result(&tap(&row.round(), &column.round())?);
    }
    let (top, left) = (row.floor(), column.floor());
    let (down, right) = (&row - &top, &column - &left);
    let weight = |x: &Tensor| c.cx.unsqueeze(x, 1);
    let (down, right) = (weight(&down)?, weight(&right)?);
    let (up, before) = (c.cx.f(1.0) - &down, c.cx.f(1.0) - &right);
    let (bottom, after) = (&top + 1.0, &left + 1.0);
    let upper = tap(&top, &left)? * &before + tap(&top, &after)? * &right;
    let lower = tap(&bottom, &left)? * &before + tap(&bottom, &after)? * &right;
    c.result(&(upper * up + lower * down))
}

fn affine_grid(c: &Call<'_>) -> Lowered<Array> {
    let theta = c.tensor("theta")?.tensor;
    let size = c.sizes("size")?;
    let [_, _, height, width] = size.as_slice() else { return Fault::unsupported("volumes") };
    let aligned = c.bool_or("align_corners", false)?;
    let shape = [height.clone(), width.clone()];
    let axis = |axis: usize| -> Lowered<Tensor> {
        let places = c.cx.positions(&shape, axis)?.cast(DType::F32);
        let size = extent(c, &shape[axis])?;
        Ok(match aligned {
            true => places * 2.0 / (size - 1.0).maximum(1.0) - 1.0,
            false => (places * 2.0 + 1.0) / size - 1.0,
        })
    };
    let (row, column) = (axis(0)?, axis(1)?);
    let entry = |i: i64, j: i64| -> Lowered<Tensor> {
        let entry = c.cx.select(&c.cx.select(&theta, 1, &i.into())?, 1, &j.into())?;
        c.cx.unsqueeze(&c.cx.unsqueeze(&entry, 1)?, 2)
    };
    let component = |i: i64| -> Lowered<Tensor> {
        let sum = entry(i, 0)? * &column + entry(i, 1)? * &row + entry(i, 2)?;
        c.cx.unsqueeze(&sum, 3)
    };
    let parts = [component(0)?, component(1)?];
    c.result(&c.cx.concat(&parts, 3))
}

fn cross(c: &Call<'_>, dim: i64) -> Lowered<Array> {
    let ([a, b], _) = super::activation::common(c, ["self", "other"])?;
    let shape = c.cx.broadcast_shape(&[&a, &b])?;
    let axis = crate::call::axis(dim, shape.len())?;
    let (a, b) = (c.cx.expand(&a, &shape)?, c.cx.expand(&b, &shape)?);
    let rolled = |x: &Tensor, step: i64| {
        let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
        index[axis] = coord(axis).binary(BinaryOp::Add, step).binary(BinaryOp::Mod, 3i64);
        c.cx.remap(x, &shape, index, None, &[])
    };
    c.result(&(rolled(&a, 1)? * rolled(&b, 2)? - rolled(&a, 2)? * rolled(&b, 1)?))
}

fn isin(c: &Call<'_>) -> Lowered<Array> {
    let names = if c.has("elements") { ["elements", "test_elements"] } else { ["element", "test_elements"] };
    let (x, tests) = (operand(c, names[0])?, operand(c, names[1])?);
    let ty = super::binary::common_type(c, &[&x, &tests]);
    let (x, tests) = (computed(c, &x, ty)?, computed(c, &tests, ty)?);
    let count = Size::product(&c.cx.shape(&tests));
    limit(c.cx, &count, 1 << 24, "a search")?;
    let rank = x.rank();
    let equal = c.cx.unsqueeze(&x, rank)?.equal(&c.cx.reshape(&tests, &[count])?);
    let found = extreme(c.cx, &Array { tensor: equal, ty: ScalarType::Bool }, &[rank], true)?;
    let found = c.cx.squeeze(&found, rank)?;
    c.result(&if c.bool_or("invert", false)? { found.not() } else { found })
}
