//! Grids of positions, and other functions of vectors.

use super::One;
use super::binary::{computed, operand};
use super::grid::extent;
use super::reduce::{extreme, limit};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::coord;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
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
