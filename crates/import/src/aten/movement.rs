//! Operators that move elements, and the regions of their operands that views show.

use super::binary::{Operand, common_type};
use super::{Many, One};
use crate::array::Array;
use crate::call::{Call, axis};
use crate::context::coord;
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;

/// An offset larger than any extent. Adding it to an index makes the index out of range.
pub(super) const OUTSIDE: i64 = 1 << 30;

pub(super) const ONE: One = &[
    ("aten.view", reshape),
    ("aten.reshape", reshape),
    ("aten._unsafe_view", reshape),
    ("aten.view_copy", reshape),
    ("aten._reshape_alias", reshape),
    ("aten.view_as", reshape),
    ("aten.reshape_as", reshape),
    ("aten.flatten", reshape),
    ("aten.ravel", reshape),
    ("aten.unflatten", reshape),
    ("aten.unsqueeze", reshape),
    ("aten.unsqueeze_copy", reshape),
    ("aten.squeeze", reshape),
    ("aten.squeeze_copy", reshape),
    ("aten.atleast_1d", reshape),
    ("aten.atleast_2d", reshape),
    ("aten.atleast_3d", reshape),
    ("aten.block_diag", block_diagonal),
    ("aten.expand", expand),
    ("aten.expand_copy", expand),
    ("aten.expand_as", expand),
    ("aten.broadcast_to", expand),
    ("aten.permute", permuted),
    ("aten.permute_copy", permuted),
    ("aten.transpose", permuted),
    ("aten.transpose_copy", permuted),
    ("aten.swapaxes", permuted),
    ("aten.swapdims", permuted),
    ("aten.t", permuted),
    ("aten.t_copy", permuted),
    ("aten.numpy_T", permuted),
    ("aten.mT", permuted),
    ("aten.mH", permuted),
    ("aten.adjoint", permuted),
    ("aten.movedim", permuted),
    ("aten.moveaxis", permuted),
    ("aten.select", ranged),
    ("aten.select_copy", ranged),
    ("aten.slice", ranged),
    ("aten.slice_copy", ranged),
    ("aten.narrow", ranged),
    ("aten.narrow_copy", ranged),
    ("aten.repeat", repeat),
    ("aten.tile", repeat),
    ("aten.repeat_interleave.self_int", repeat_interleave),
    ("aten.flip", flip),
    ("aten.fliplr", flip),
    ("aten.flipud", flip),
    ("aten.roll", roll),
    ("aten.rot90", rot90),
    ("aten.unfold", unfold),
    ("aten.unfold_copy", unfold),
    ("aten.tril", |c| triangle(c, true)),
    ("aten.triu", |c| triangle(c, false)),
    ("aten.diagonal", |c| diagonal(c, c.int_or("offset", 0)?, [c.int_or("dim1", 0)?, c.int_or("dim2", 1)?])),
    ("aten.diagonal_copy", |c| diagonal(c, c.int_or("offset", 0)?, [c.int_or("dim1", 0)?, c.int_or("dim2", 1)?])),
    ("aten.diag_embed", |c| diag_embed(c, c.int_or("offset", 0)?, [c.int_or("dim1", -2)?, c.int_or("dim2", -1)?])),
    ("aten.diag", |c| {
        let offset = c.int_or("diagonal", 0)?;
        if c.x()?.rank() == 1 { diag_embed(c, offset, [-2, -1]) } else { diagonal(c, offset, [0, 1]) }
    }),
    ("aten.pixel_shuffle", |c| pixels(c, true)),
    ("aten.pixel_unshuffle", |c| pixels(c, false)),
    ("aten.channel_shuffle", |c| {
        let x = c.x()?;
        let (shape, groups) = (c.cx.shape(&x.tensor), c.size("groups")?);
        let mut split = shape.clone();
        split[1] = c.cx.quotient(&shape[1], &groups)?;
        split.insert(1, groups);
        let parts = c.cx.reshape(&x.tensor, &split)?.transpose(1, 2);
        c.result(&c.cx.reshape(&parts, &shape)?)
    }),
    ("aten.select_scatter", written),
    ("aten.slice_scatter", written),
];

pub(super) const MANY: Many = &[
    ("aten.split", parts),
    ("aten.split_with_sizes", parts),
    ("aten.split_copy", parts),
    ("aten.split_with_sizes_copy", parts),
    ("aten.unsafe_split", parts),
    ("aten.unsafe_split_with_sizes", parts),
    ("aten.chunk", parts),
    ("aten.unsafe_chunk", parts),
    ("aten.tensor_split", parts),
    ("aten.unbind", |c| {
        let x = c.x()?;
        let axis = c.axis_or("dim", 0, x.rank())?;
        let one = |place: usize| Ok(c.cx.stored(&c.cx.select(&x.tensor, axis, &place.into())?, x.ty)?.into());
        list((0..c.declared.len()).map(one))
    }),
    ("aten.meshgrid", |c| {
        let tensors = c.tensors("tensors")?;
        let swapped = c.string_or("indexing", "ij")? == "xy" && tensors.len() > 1;
        let place = |n: usize| if swapped && n < 2 { 1 - n } else { n };
        let one = |(n, x): (usize, &Array)| {
            let mut along = vec![Size::from(1); tensors.len()];
            along[place(n)] = c.cx.shape(&x.tensor).into_iter().next().unwrap_or_else(|| 1.into());
            c.nth(n, &c.cx.expand(&c.cx.reshape(&x.tensor, &along)?, &c.shape(n)?)?)
        };
        list(tensors.iter().enumerate().map(one))
    }),
    ("aten.broadcast_tensors", |c| {
        let tensors = c.tensors("tensors")?;
        list(tensors.iter().enumerate().map(|(n, x)| c.nth(n, &c.cx.expand(&x.tensor, &c.shape(n)?)?)))
    }),
];

/// A result that is a list of tensors.
fn list(values: impl Iterator<Item = Lowered<Value>>) -> Lowered<Vec<Value>> {
    Ok(vec![Value::List(values.collect::<Lowered<_>>()?)])
}

fn reshape(c: &Call<'_>) -> Lowered<Array> {
    if c.overload == "dtype" {
        return Fault::unsupported("elements read as another type");
    }
    let x = c.x()?;
    Ok(Array { tensor: c.cx.reshape(&x.tensor, &c.shape(0)?)?, ty: x.ty })
}

fn expand(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    Ok(Array { tensor: c.cx.expand(&x.tensor, &c.shape(0)?)?, ty: x.ty })
}

/// The order of axes of a transposition.
pub(crate) fn permutation(c: &Call<'_>, rank: usize) -> Lowered<Vec<usize>> {
    let mut axes: Vec<usize> = (0..rank).collect();
    match c.base.trim_end_matches("_copy") {
        "aten.permute" => c.ints("dims")?.into_iter().map(|dim| axis(dim, rank)).collect(),
        "aten.t" | "aten.numpy_T" => Ok(axes.into_iter().rev().collect()),
        "aten.mT" | "aten.mH" | "aten.adjoint" => {
            axes.swap(rank.saturating_sub(1), rank.saturating_sub(2));
            Ok(axes)
        }
        "aten.movedim" | "aten.moveaxis" => {
            let places =
                |name: &str| -> Lowered<Vec<usize>> { c.ints(name)?.into_iter().map(|dim| axis(dim, rank)).collect() };
            let (from, to) = (places("source")?, places("destination")?);
            let mut rest = axes.iter().filter(|axis| !from.contains(axis));
            let order = (0..rank).map(|place| match to.iter().position(|&to| to == place) {
                Some(n) => from.get(n).copied(),
                None => rest.next().copied(),
            });
            order.collect::<Option<Vec<_>>>().ok_or_else(|| Fault::Program("movedim: axes".to_owned()))
        }
        _ => {
            let names = if c.has("dim0") { ["dim0", "dim1"] } else { ["axis0", "axis1"] };
            let [a, b] = names.map(|name| c.axis(name, rank));
            if rank > 0 {
                axes.swap(a?, b?);
            }
            Ok(axes)
        }
    }
}

fn permuted(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let axes = permutation(c, x.rank())?;
    Ok(Array { tensor: x.tensor.permute(&axes), ty: x.ty })
}

/// A region of an operand along one axis.
pub(crate) struct ViewRegion {
    pub axis: usize,
    pub start: Size,
    pub step: i64,
    pub len: Size,
    /// True if the view removes the axis.
    pub is_removed: bool,
}

/// A position along an axis; negative ones count from the end.
fn place(c: &Call<'_>, value: &Size, extent: &Size) -> Lowered<Size> {
    let (low, high) = c.cx.sizes.borrow().bounds(value);
    match (low >= 0, high < 0) {
        (true, _) => Ok(value.clone()),
        (_, true) => Ok(value.plus(extent)),
        _ => Fault::unsupported("a place that may count from either end"),
    }
}

/// The region of `x` that a result shows.
pub(crate) fn region(c: &Call<'_>, x: &Tensor, output: usize) -> Lowered<ViewRegion> {
    let shape = c.cx.shape(x);
    let axis = c.axis_or("dim", 0, x.rank())?;
    let extent = shape.get(axis).cloned().ok_or_else(|| Fault::Program("a slice without an axis".to_owned()))?;
    let base = c.base.trim_end_matches("_copy").trim_end_matches("_scatter");
    let one = |start: Size, is_removed: bool, len: Size| ViewRegion { axis, start, step: 1, len, is_removed };
    match base {
        "aten.select" => Ok(one(place(c, &c.size("index")?, &extent)?, true, 1.into())),
        "aten.narrow" => Ok(one(place(c, &c.size("start")?, &extent)?, false, c.size("length")?)),
        "aten.unbind" => Ok(one(output.into(), true, 1.into())),
        "aten.slice" => {
            let step = c.int_or("step", 1)?;
            let bound = |name: &str, default: &Size| -> Lowered<Size> {
                let value = if c.has(name) { place(c, &c.size(name)?, &extent)? } else { default.clone() };
                let mut sizes = c.cx.sizes.borrow_mut();
                let above = sizes.larger(&value, &0.into());
                Ok(sizes.smaller(&above, &extent))
            };
            let (start, end) = (bound("start", &0.into())?, bound("end", &extent)?);
            let len = end.minus(&start).plus(&Size::from(step - 1));
            let len = c.cx.quotient(&len, &step.into())?;
            let len = c.cx.sizes.borrow_mut().larger(&len, &0.into());
            Ok(ViewRegion { axis, start, step, len, is_removed: false })
        }
        _ => {
            let mut start = Size::default();
            for n in 0..output {
                let before = c.shape(n)?;
                start = start.plus(before.get(axis).unwrap_or(&Size::default()));
            }
            let own = c.shape(output)?;
            Ok(one(start, false, own.get(axis).cloned().unwrap_or_default()))
        }
    }
}

fn ranged(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let mut region = region(c, &x.tensor, 0)?;
    if !region.is_removed
        && let Ok(shape) = c.shape(0)
    {
        region.len = shape.get(region.axis).cloned().unwrap_or_default();
    }
    let part = c.cx.slice(&x.tensor, region.axis, (&region.start, region.step), &region.len)?;
    let tensor = if region.is_removed { c.cx.squeeze(&part, region.axis)? } else { part };
    Ok(Array { tensor, ty: x.ty })
}

/// `x` with a region replaced by `source`.
pub(crate) fn replaced(c: &Call<'_>, x: &Tensor, region: &ViewRegion, source: &Tensor) -> Lowered<Tensor> {
    let shape = c.cx.shape(x);
    let mut part = shape.clone();
    part[region.axis] = region.len.clone();
    let source = if region.is_removed { c.cx.reshape(source, &part)? } else { source.clone() };
    let offset = coord(region.axis).binary(BinaryOp::Sub, c.cx.index(&region.start)?);
    let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
    index[region.axis] = offset.binary(BinaryOp::Div, region.step);
    let spread = c.cx.remap(&source, &shape, index, None, &[])?;
    let start = c.cx.number(&crate::value::Number::Int(region.start.clone()), crate::ScalarType::I64)?.tensor;
    let end = c.cx.number(&crate::value::Number::Int(region.len.clone()), crate::ScalarType::I64)?.tensor;
    let places = c.cx.positions(&shape, region.axis)? - start;
    let inside = places.ge(0i64).and(places.lt(&(end * region.step)));
    let inside = if region.step == 1 { inside } else { inside.and(places.modulo(region.step).equal(0i64)) };
    Ok(inside.select(&spread, x))
}

fn written(c: &Call<'_>) -> Lowered<Array> {
    let (x, source) = (c.x()?, c.tensor("src")?);
    let region = region(c, &x.tensor, 0)?;
    c.result(&replaced(c, &x.tensor, &region, &c.cx.cast(&source, x.ty).tensor)?)
}

fn parts(c: &Call<'_>) -> Lowered<Vec<Value>> {
    let x = c.x()?;
    let one = |output: usize| {
        let region = region(c, &x.tensor, output)?;
        let tensor = c.cx.slice(&x.tensor, region.axis, (&region.start, 1), &region.len)?;
        Ok(Array { tensor, ty: x.ty }.into())
    };
    list((0..c.declared.len()).map(one))
}

/// A list of tensors in their promoted type, without empty vectors, which concatenation ignores.
pub(super) fn common_list(c: &Call<'_>) -> Lowered<Vec<Tensor>> {
    let arrays = c.tensors("tensors")?;
    let operands: Vec<Operand> = arrays.iter().cloned().map(Operand::Array).collect();
    let ty = common_type(c, &operands.iter().collect::<Vec<_>>());
    let most = arrays.iter().map(Array::rank).max().unwrap_or(0);
    let is_ignored = |x: &Array| x.rank() == 1 && most > 1 && x.tensor.dim(0).as_const() == Some(0);
    Ok(arrays.iter().filter(|x| !is_ignored(x)).map(|x| c.cx.cast(x, ty).tensor).collect())
}

fn repeat(c: &Call<'_>) -> Lowered<Array> {
    let (x, shape) = (c.x()?, c.shape(0)?);
    let own = c.cx.shape(&x.tensor);
    let skipped = shape.len().saturating_sub(own.len());
    let mut index = vec![];
    for (axis, size) in own.iter().enumerate() {
        let place = coord(axis + skipped);
        let is_whole = shape[axis + skipped] == *size;
        index.push(if is_whole { place } else { place.binary(BinaryOp::Mod, c.cx.index(size)?) });
    }
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, index, None, &[])?, ty: x.ty })
}

fn repeat_interleave(c: &Call<'_>) -> Lowered<Array> {
    let mut x = c.x()?;
    let axis = match c.has("dim") {
        true => c.axis("dim", x.rank())?,
        false => {
            x.tensor = c.cx.reshape(&x.tensor, &[Size::product(&c.cx.shape(&x.tensor))])?;
            0
        }
    };
    let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
    let repeats = c.size("repeats")?;
    index[axis] = coord(axis).binary(BinaryOp::Div, c.cx.index(&repeats)?);
    let mut shape = c.cx.shape(&x.tensor);
    shape[axis] = shape[axis].times(&repeats);
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, index, None, &[])?, ty: x.ty })
}

fn flip(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let axes = match c.base {
        "aten.fliplr" => vec![1],
        "aten.flipud" => vec![0],
        _ => c.ints("dims")?.into_iter().map(|dim| axis(dim, x.rank())).collect::<Lowered<_>>()?,
    };
    let axes = if x.rank() == 0 { vec![] } else { axes };
    Ok(Array { tensor: axes.into_iter().fold(x.tensor, |x, axis| x.flip(axis)), ty: x.ty })
}

fn roll(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let shape = c.cx.shape(&x.tensor);
    let (shifts, dims) = (c.sizes("shifts")?, c.ints_or("dims", &[])?);
    let flat = [Size::product(&shape)];
    let (mut tensor, whole) = match dims.is_empty() {
        true => (c.cx.reshape(&x.tensor, &flat)?, true),
        false => (x.tensor.clone(), false),
    };
    let dims = if whole { vec![0] } else { dims };
    for (dim, shift) in dims.iter().zip(&shifts) {
        let (axis, own) = (axis(*dim, tensor.rank())?, c.cx.shape(&tensor));
        let mut index: Vec<IndexExpr> = (0..own.len()).map(coord).collect();
        let moved = coord(axis).binary(BinaryOp::Sub, c.cx.index(shift)?);
        index[axis] = moved.binary(BinaryOp::Mod, c.cx.index(&own[axis])?);
        tensor = c.cx.remap(&tensor, &own, index, None, &[])?;
    }
    Ok(Array { tensor: c.cx.reshape(&tensor, &shape)?, ty: x.ty })
}

fn rot90(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let dims = c.ints_or("dims", &[0, 1])?;
    let [a, b] = [0, 1].map(|n| axis(dims.get(n).copied().unwrap_or(0), x.rank()));
    let (a, b) = (a?, b?);
    let tensor = match c.int_or("k", 1)?.rem_euclid(4) {
        0 => x.tensor,
        1 => x.tensor.flip(b).transpose(a, b),
        2 => x.tensor.flip(a).flip(b),
        _ => x.tensor.transpose(a, b).flip(b),
    };
    Ok(Array { tensor, ty: x.ty })
}

fn unfold(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let shape = c.shape(0)?;
    let axis = c.axis("dimension", x.rank())?;
    let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
    let start = coord(axis).binary(BinaryOp::Mul, c.cx.index(&c.size("step")?)?);
    index[axis] = start.binary(BinaryOp::Add, coord(x.rank()));
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, index, None, &[])?, ty: x.ty })
}

fn triangle(c: &Call<'_>, is_lower: bool) -> Lowered<Array> {
    let x = c.x()?;
    let shape = c.cx.shape(&x.tensor);
    let (row, column) = (shape.len() - 2, shape.len() - 1);
    let diagonal = c.cx.number(&crate::value::Number::Int(c.size_or("diagonal", 0)?), crate::ScalarType::I64)?;
    let (rows, columns) = (c.cx.positions(&shape, row)? + &diagonal.tensor, c.cx.positions(&shape, column)?);
    let kept = if is_lower { rows.ge(&columns) } else { rows.le(&columns) };
    c.result(&kept.select(&x.tensor, &c.cx.zero(&x.tensor)))
}

fn diagonal(c: &Call<'_>, offset: i64, dims: [i64; 2]) -> Lowered<Array> {
    let x = c.x()?;
    let shape = c.shape(0)?;
    let [a, b] = dims.map(|dim| axis(dim, x.rank()));
    let (a, b) = (a?, b?);
    let place = coord(shape.len() - 1);
    let mut others = 0..;
    let index = (0..x.rank()).map(|axis| match axis {
        axis if axis == a => place.clone().binary(BinaryOp::Add, (-offset).max(0)),
        axis if axis == b => place.clone().binary(BinaryOp::Add, offset.max(0)),
        _ => coord(others.next().unwrap_or(0)),
    });
    let index = index.collect();
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, index, None, &[])?, ty: x.ty })
}

fn diag_embed(c: &Call<'_>, offset: i64, dims: [i64; 2]) -> Lowered<Array> {
    let x = c.x()?;
    let shape = c.shape(0)?;
    let [a, b] = dims.map(|dim| axis(dim, shape.len()));
    let (a, b) = (a?, b?);
    let distance = coord(b).binary(BinaryOp::Sub, coord(a)).binary(BinaryOp::Sub, offset);
    let beside = distance.binary(BinaryOp::Ne, 0i64).binary(BinaryOp::Mul, OUTSIDE);
    let place = coord(a).binary(BinaryOp::Sub, (-offset).max(0)).binary(BinaryOp::Sub, beside);
    let others = (0..shape.len()).filter(|axis| *axis != a && *axis != b).map(coord);
    let index = others.chain([place]).collect();
    let zero = c.cx.zero(&x.tensor);
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, index, Some(&zero), &[])?, ty: x.ty })
}

/// A matrix with the given matrices on its diagonal.
fn block_diagonal(c: &Call<'_>) -> Lowered<Array> {
    let (ty, shape) = (c.ty(0)?, c.shape(0)?);
    let mut sum: Option<Tensor> = None;
    let (mut row, mut column) = (Size::default(), Size::default());
    for x in c.tensors("tensors")? {
        let own = c.cx.shape(&x.tensor);
        let matrix = [vec![Size::from(1); 2 - own.len().min(2)], own].concat();
        let x = c.cx.reshape(&c.cx.cast(&x, ty).tensor, &matrix)?;
        let index =
            [(0, &row), (1, &column)].map(|(axis, start)| Ok(coord(axis).binary(BinaryOp::Sub, c.cx.index(start)?)));
        let index = index.into_iter().collect::<Lowered<Vec<_>>>()?;
        let part = c.cx.remap(&x, &shape, index, Some(&c.cx.zero(&x)), &[])?;
        sum = Some(sum.map_or_else(|| part.clone(), |sum| sum + &part));
        (row, column) = (row.plus(&matrix[0]), column.plus(&matrix[1]));
    }
    c.result(&sum.ok_or_else(|| Fault::Program("no matrices".to_owned()))?)
}

fn pixels(c: &Call<'_>, is_shuffle: bool) -> Lowered<Array> {
    let x = c.x()?;
    let factor = c.size(if is_shuffle { "upscale_factor" } else { "downscale_factor" })?;
    let shape = c.cx.shape(&x.tensor);
    let outer = shape.len() - 3;
    let (mut split, mut axes) = (shape[..outer].to_vec(), (0..outer).collect::<Vec<_>>());
    let [channels, height, width] = [0, 1, 2].map(|n| shape[outer + n].clone());
    if is_shuffle {
        let square = factor.times(&factor);
        split.extend([c.cx.quotient(&channels, &square)?, factor.clone(), factor, height, width]);
        axes.extend([0, 3, 1, 4, 2].map(|n| outer + n));
    } else {
        let (rows, columns) = (c.cx.quotient(&height, &factor)?, c.cx.quotient(&width, &factor)?);
        split.extend([channels, rows, factor.clone(), columns, factor]);
        axes.extend([0, 2, 4, 1, 3].map(|n| outer + n));
    }
    let moved = c.cx.reshape(&x.tensor, &split)?.permute(&axes);
    c.result(&c.cx.reshape(&moved, &c.shape(0)?)?)
}
