//! Scatters elements to indices.

use super::One;
use super::gather::{along, counted};
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::node::{Node, flag};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;

pub(super) const ONE: One =
    &[("ScatterElements", elements), ("Scatter", elements), ("ScatterND", nd), ("TensorScatter", cache)];

/// The ATen name of the reduction; `None` if the last source wins.
fn reduction(n: &Node<'_>) -> Lowered<Option<&'static str>> {
    Ok(match n.text("reduction", "none").as_str() {
        "none" => None,
        "add" => Some("sum"),
        "mul" => Some("prod"),
        "max" => Some("amax"),
        "min" => Some("amin"),
        other => return Fault::unsupported(format!("reduction=`{other}`")),
    })
}

/// Scatters `source` along an axis of `x`.
fn scattered(n: &Node<'_>, x: Array, axis: usize, index: Array, source: Array) -> Lowered<Array> {
    let ty = x.ty;
    let mut arguments =
        vec![("self", x.into()), ("dim", Value::int(axis)), ("index", index.into()), ("src", source.into())];
    match reduction(n)? {
        None => n.aten("aten.scatter", arguments, ty, &[]),
        Some(reduce) => {
            arguments.push(("reduce", Value::String(reduce.to_owned())));
            arguments.push(("include_self", flag(true)));
            n.aten("aten.scatter_reduce", arguments, ty, &[])
        }
    }
}

fn elements(n: &Node<'_>) -> Lowered<Array> {
    let (x, index, source) = (n.x()?, n.array(1)?, n.array(2)?);
    let axis = along(n, x.rank())?;
    let index = counted(n, &index, &n.shape(&x)[axis])?;
    scattered(n, x, axis, index, source)
}

/// Flattens the indexed axes to rows, and scatters sources to flat row indices.
fn nd(n: &Node<'_>) -> Lowered<Array> {
    let (x, index, source) = (n.x()?, n.array(1)?, n.array(2)?);
    let (own, others) = (n.shape(&x), n.shape(&index));
    let Some((depth, outer)) = others.split_last() else { return Fault::program("ScatterND without an index") };
    let depth = depth.as_extent().filter(|&depth| depth <= own.len() && depth > 0);
    let depth = depth.ok_or_else(|| Fault::Unsupported("an index of another depth".to_owned()))?;
    let (places, rest) = (Size::product(&own[..depth]), Size::product(&own[depth..]));
    let count = Size::product(outer);
    let mut flat = None;
    for (component, extent) in own[..depth].iter().enumerate() {
        let part = n.cx.select(&index.tensor, outer.len(), &component.into())?;
        let part = counted(n, &Array { tensor: part, ty: index.ty }, extent)?.tensor;
        flat = Some(match flat {
            None => part,
            Some(flat) => flat * n.number(extent)? + part,
        });
    }
    let flat = flat.ok_or_else(|| Fault::Program("ScatterND without an index".to_owned()))?;
    let flat = n.cx.reshape(&flat, &[count.clone(), 1.into()])?;
    let sources = [count, rest.clone()];
    let index = Array { tensor: n.cx.expand(&flat, &sources)?, ty: ScalarType::I64 };
    let source = Array { tensor: n.cx.reshape(&source.tensor, &sources)?, ty: source.ty };
    let rows = Array { tensor: n.cx.reshape(&x.tensor, &[places, rest])?, ty: x.ty };
    let y = scattered(n, rows, 0, index, source)?;
    Ok(Array { tensor: n.cx.reshape(&y.tensor, &own)?, ty: y.ty })
}

fn cache(n: &Node<'_>) -> Lowered<Array> {
    let (x, update) = (n.x()?, n.array(1)?);
    let axis = n.axis("axis", -2, x.rank())?;
    let starts = match n.optional(2)? {
        Some(starts) => n.cx.cast(&starts, ScalarType::I64).tensor,
        None => n.cx.expand(&n.cx.scope.scalar(rewire_graph::DType::I64, 0i64), &n.shape(&x)[..1])?,
    };
    let is_circular = n.text("mode", "linear") == "circular";
    n.stored(&cached(n, &x.tensor, &update.tensor, axis, &starts, is_circular)?, x.ty)
}

/// Writes `update` to a cache, at a separate start position for each sample.
pub(super) fn cached(
    n: &Node<'_>,
    x: &Tensor,
    update: &Tensor,
    axis: usize,
    starts: &Tensor,
    is_circular: bool,
) -> Lowered<Tensor> {
    let shape = n.cx.shape(x);
    let start = IndexExpr::Load { operand: 1, index: vec![coord(0)] };
    let place = coord(axis).binary(BinaryOp::Sub, start);
    let extent = n.cx.index(&shape[axis])?;
    let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
    index[axis] = if is_circular { place.binary(BinaryOp::Mod, extent) } else { place };
    let written = n.cx.remap(update, &shape, index, None, &[starts])?;
    let mut samples = vec![Size::from(1); shape.len()];
    samples[0] = shape[0].clone();
    let places = n.cx.positions(&shape, axis)? - n.cx.reshape(starts, &samples)?;
    let places = if is_circular { places.modulo(&n.number(&shape[axis])?) } else { places };
    let len = n.number(&n.cx.extent(update, axis))?;
    Ok(places.ge(0i64).and(places.lt(&len)).select(&written, x))
}
