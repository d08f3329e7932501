//! Gathers elements by indices.

use super::One;
use crate::ScalarType;
use crate::array::Array;
use crate::aten::wrapped;
use crate::context::coord;
use crate::onnx::node::{Node, axis};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;
use rewire_graph::op::IndexExpr;

pub(super) const ONE: One = &[("Gather", gather), ("GatherElements", gather_elements), ("GatherND", gather_nd)];

fn gather(n: &Node<'_>) -> Lowered<Array> {
    let (x, index) = (n.x()?, integers(&n.array(1)?)?);
    let axis = n.axis("axis", 0, x.rank())?;
    let (own, others) = (n.shape(&x), n.cx.shape(&index));
    let shape = [&own[..axis], &others, &own[axis + 1..]].concat();
    let at = (0..others.len()).map(|place| coord(axis + place)).collect();
    let place = wrapped(n.cx, 1, at, &own[axis])?;
    let after = (axis + 1..x.rank()).map(|place| coord(place + others.len() - 1));
    let places = (0..axis).map(coord).chain([place]).chain(after).collect();
    Ok(Array { tensor: n.cx.remap(&x.tensor, &shape, places, None, &[&index])?, ty: x.ty })
}

fn integers(x: &Array) -> Lowered<Tensor> {
    if x.ty.is_integer() { Ok(x.tensor.clone()) } else { Fault::unsupported(format!("an index of type {}", x.ty)) }
}

/// Converts negative indices, which count from the end of the axis.
pub(super) fn counted(n: &Node<'_>, index: &Array, extent: &Size) -> Lowered<Array> {
    let index = n.cx.cast(index, ScalarType::I64).tensor;
    let tensor = index.lt(0i64).select(&(&index + n.number(extent)?), &index);
    Ok(Array { tensor, ty: ScalarType::I64 })
}

fn gather_elements(n: &Node<'_>) -> Lowered<Array> {
    let (x, index) = (n.x()?, n.array(1)?);
    let axis = n.axis("axis", 0, x.rank())?;
    let index = counted(n, &index, &n.shape(&x)[axis])?;
    let ty = x.ty;
    n.aten("aten.gather", vec![("self", x.into()), ("dim", Value::int(axis)), ("index", index.into())], ty, &[])
}

fn gather_nd(n: &Node<'_>) -> Lowered<Array> {
    let (x, index) = (n.x()?, integers(&n.array(1)?)?);
    let batch = usize::try_from(n.int("batch_dims", 0)).unwrap_or(usize::MAX);
    let (own, others) = (n.shape(&x), n.cx.shape(&index));
    let Some((depth, outer)) = others.split_last() else { return Fault::program("GatherND without an index") };
    let depth = depth.as_extent().ok_or_else(|| Fault::Unsupported("an index of symbolic depth".to_owned()))?;
    if batch > outer.len() || batch.saturating_add(depth) > own.len() {
        return Fault::program("GatherND: an index of more axes than there are");
    }
    let shape = [outer, &own[batch + depth..]].concat();
    let mut places: Vec<IndexExpr> = (0..batch).map(coord).collect();
    for component in 0..depth {
        let at = (0..outer.len()).map(coord).chain([IndexExpr::Int(component as i64)]).collect();
        places.push(wrapped(n.cx, 1, at, &own[batch + component])?);
    }
    places.extend((batch + depth..own.len()).map(|axis| coord(outer.len() + axis - batch - depth)));
    Ok(Array { tensor: n.cx.remap(&x.tensor, &shape, places, None, &[&index])?, ty: x.ty })
}

/// The `axis` attribute of a node, for a tensor of this rank.
pub(super) fn along(n: &Node<'_>, rank: usize) -> Lowered<usize> {
    axis(n.int("axis", 0), rank)
}
