//! Padding.

use super::One;
use super::binary::{computed, operand};
use crate::array::Array;
use crate::call::Call;
use crate::context::coord;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;

pub(super) const ONE: One = &[
    ("aten.pad", |c| match c.string_or("mode", "constant")?.as_str() {
        "constant" => constant(c),
        mode => mirrored(c, mode),
    }),
    ("aten.constant_pad_nd", constant),
    ("aten.reflection_pad1d", |c| mirrored(c, "reflect")),
    ("aten.reflection_pad2d", |c| mirrored(c, "reflect")),
    ("aten.reflection_pad3d", |c| mirrored(c, "reflect")),
    ("aten.replication_pad1d", |c| mirrored(c, "replicate")),
    ("aten.replication_pad2d", |c| mirrored(c, "replicate")),
    ("aten.replication_pad3d", |c| mirrored(c, "replicate")),
    ("aten._pad_circular", |c| mirrored(c, "circular")),
];

/// Indices into the operand, the shape of the result, and which axes are padded. Padding is specified from the last axis on.
fn places(c: &Call<'_>, x: &Array) -> Lowered<(Vec<IndexExpr>, Vec<Size>, Vec<bool>)> {
    let pads = c.sizes(if c.has("pad") { "pad" } else { "padding" })?;
    let mut shape = c.cx.shape(&x.tensor);
    let mut index: Vec<IndexExpr> = (0..x.rank()).map(coord).collect();
    let mut is_padded = vec![false; x.rank()];
    for (n, pair) in pads.chunks(2).enumerate() {
        let (Some(axis), [before, after]) = (x.rank().checked_sub(n + 1), pair) else {
            return Fault::program("padding of more axes than there are");
        };
        index[axis] = coord(axis).binary(BinaryOp::Sub, c.cx.index(before)?);
        shape[axis] = shape[axis].plus(before).plus(after);
        is_padded[axis] = true;
    }
    Ok((index, shape, is_padded))
}

fn constant(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let (index, shape, _) = places(c, &x)?;
    let value = if c.has("value") { computed(c, &operand(c, "value")?, x.ty)? } else { c.cx.zero(&x.tensor) };
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, index, Some(&value), &[])?, ty: x.ty })
}

fn mirrored(c: &Call<'_>, mode: &str) -> Lowered<Array> {
    let x = c.x()?;
    let (mut index, shape, is_padded) = places(c, &x)?;
    let own = c.cx.shape(&x.tensor);
    for axis in (0..x.rank()).filter(|&axis| is_padded[axis]) {
        let place = index[axis].clone();
        let last = c.cx.index(&own[axis].minus(&1.into()))?;
        let magnitude = |x: IndexExpr| x.clone().binary(BinaryOp::Max, IndexExpr::Int(0).binary(BinaryOp::Sub, x));
        index[axis] = match mode {
            "reflect" => {
                let above = last.clone().binary(BinaryOp::Sub, magnitude(place));
                last.binary(BinaryOp::Sub, magnitude(above))
            }
            "replicate" => place.binary(BinaryOp::Max, 0i64).binary(BinaryOp::Min, last),
            "circular" => place.binary(BinaryOp::Mod, c.cx.index(&own[axis])?),
            other => return Fault::unsupported(format!("mode=`{other}`")),
        };
    }
    Ok(Array { tensor: c.cx.remap(&x.tensor, &shape, index, None, &[])?, ty: x.ty })
}
