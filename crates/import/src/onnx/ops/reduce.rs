//! Reductions.

use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::context::coord;
use crate::onnx::item::Item;
use crate::onnx::node::{Node, axis, flag, ints};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;

pub(super) const ONE: One = &[
    ("ReduceSum", |n| reduced(n, |n, x, axes| by(n, "aten.sum", x, axes))),
    ("ReduceMean", |n| reduced(n, |n, x, axes| by(n, "aten.mean", x, axes))),
    ("ReduceMax", |n| reduced(n, |n, x, axes| by(n, "aten.amax", x, axes))),
    ("ReduceMin", |n| reduced(n, |n, x, axes| by(n, "aten.amin", x, axes))),
    ("ReduceProd", |n| reduced(n, product)),
    ("ReduceL1", |n| {
        reduced(n, |n, x, axes| {
            let magnitude = n.stored(&x.tensor.abs(), x.ty)?;
            by(n, "aten.sum", &magnitude, axes)
        })
    }),
    ("ReduceL2", |n| reduced(n, |n, x, axes| root(n, &sum_square(n, x, axes)?))),
    ("ReduceSumSquare", |n| reduced(n, sum_square)),
    ("ReduceLogSum", |n| {
        reduced(n, |n, x, axes| {
            let sum = by(n, "aten.sum", x, axes)?;
            n.stored(&sum.tensor.log(), x.ty)
        })
    }),
    ("ReduceLogSumExp", |n| reduced(n, |n, x, axes| by(n, "aten.logsumexp", x, axes))),
    ("ArgMax", |n| position(n, "aten.argmax")),
    ("ArgMin", |n| position(n, "aten.argmin")),
    ("CumSum", |n| cumulative(n, "aten.cumsum", 0.0)),
    ("CumProd", |n| cumulative(n, "aten.cumprod", 1.0)),
];

pub(super) const MANY: Many = &[("TopK", top_k)];

/// A reduction over axes, which keep extent 1.
type Reduction = fn(&Node<'_>, &Array, &[usize]) -> Lowered<Array>;

fn reduced(n: &Node<'_>, f: Reduction) -> Lowered<Array> {
    let x = n.x()?;
    let given = n.ints_of("axes", 1)?.unwrap_or_default();
    let mut axes = given.iter().map(|&dim| axis(dim, x.rank())).collect::<Lowered<Vec<usize>>>()?;
    axes.sort_unstable();
    axes.dedup();
    if axes.is_empty() && !n.is("noop_with_empty_axes") {
        axes = (0..x.rank()).collect();
    }
    let is_plain = matches!(n.op, "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd");
    if axes.is_empty() && (is_plain || n.op == "ReduceLogSumExp") {
        return Ok(x);
    }
    let y = match (axes.is_empty(), n.op) {
        (false, _) => f(n, &x, &axes)?,
        (true, "ReduceL1" | "ReduceL2") => n.stored(&x.tensor.abs(), x.ty)?,
        (true, "ReduceSumSquare") => n.stored(&x.tensor.square(), x.ty)?,
        (true, _) => n.stored(&x.tensor.log(), x.ty)?,
    };
    if n.int("keepdims", 1) != 0 {
        return Ok(y);
    }
    let shape: Vec<Size> =
        n.shape(&x).into_iter().enumerate().filter(|(n, _)| !axes.contains(n)).map(|(_, size)| size).collect();
    Ok(Array { tensor: n.cx.reshape(&y.tensor, &shape)?, ty: y.ty })
}

fn by(n: &Node<'_>, base: &str, x: &Array, axes: &[usize]) -> Lowered<Array> {
    let dims: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
    n.aten(base, vec![("self", x.clone().into()), ("dim", ints(&dims)), ("keepdim", flag(true))], x.ty, &[])
}

fn product(n: &Node<'_>, x: &Array, axes: &[usize]) -> Lowered<Array> {
    axes.iter().try_fold(x.clone(), |x, &axis| {
        let ty = x.ty;
        n.aten("aten.prod", vec![("self", x.into()), ("dim", Value::int(axis)), ("keepdim", flag(true))], ty, &[])
    })
}

fn sum_square(n: &Node<'_>, x: &Array, axes: &[usize]) -> Lowered<Array> {
    let square = n.stored(&x.tensor.square(), if x.ty.is_float() { ScalarType::F32 } else { x.ty })?;
    let sum = by(n, "aten.sum", &square, axes)?;
    n.stored(&sum.tensor, x.ty)
}

fn root(n: &Node<'_>, x: &Array) -> Lowered<Array> {
    if !x.ty.is_float() {
        return Fault::unsupported("integers");
    }
    n.stored(&x.tensor.sqrt(), x.ty)
}

fn position(n: &Node<'_>, base: &str) -> Lowered<Array> {
    let mut x = n.x()?;
    let axis = n.axis("axis", 0, x.rank())?;
    let last = n.is("select_last_index");
    let extent = n.shape(&x)[axis].clone();
    if last {
        x.tensor = x.tensor.flip(axis);
    }
    let kept = n.int("keepdims", 1) != 0;
    let arguments = vec![("self", x.into()), ("dim", Value::int(axis)), ("keepdim", flag(kept))];
    let y = n.aten(base, arguments, ScalarType::I64, &[])?;
    if !last {
        return Ok(y);
    }
    let end = n.number(&extent.minus(&1.into()))?;
    Ok(Array { tensor: end - y.tensor, ty: y.ty })
}

/// Shifts the elements by one position along an axis.
fn later(n: &Node<'_>, x: &Tensor, axis: usize, first: &Tensor) -> Lowered<Tensor> {
    let shape = n.cx.shape(x);
    let mut index: Vec<IndexExpr> = (0..shape.len()).map(coord).collect();
    index[axis] = coord(axis).binary(BinaryOp::Sub, 1i64);
    n.cx.remap(x, &shape, index, Some(first), &[])
}

fn cumulative(n: &Node<'_>, base: &str, neutral: f64) -> Lowered<Array> {
    let mut x = n.x()?;
    let axis = axis(n.known_int(1)?, x.rank())?;
    let is_back = n.is("reverse");
    let ty = x.ty;
    if is_back {
        x.tensor = x.tensor.flip(axis);
    }
    // Integer sums are computed with 64 bits.
    let own = if ty.is_float() || base != "aten.cumsum" { ty } else { ScalarType::I64 };
    let y = n.aten(base, vec![("self", x.into()), ("dim", Value::int(axis))], own, &[])?;
    let mut y = n.cx.cast(&y, ty).tensor;
    if n.is("exclusive") {
        let first = n.cx.scalar(neutral, if ty.is_float() { ScalarType::F32 } else { ty })?.tensor;
        y = later(n, &y, axis, &first)?;
    }
    Ok(Array { tensor: if is_back { y.flip(axis) } else { y }, ty })
}

fn top_k(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let x = n.x()?;
    let axis = n.axis("axis", -1, x.rank())?;
    let k = match n.attribute("k") {
        Some(_) => Size::from(n.int("k", 0)),
        None => n.sizes(1)?.into_iter().next().ok_or_else(|| Fault::Program("TopK without a number".to_owned()))?,
    };
    let mut shape = n.shape(&x);
    shape[axis] = k.clone();
    let results = [(x.ty, shape.clone()), (ScalarType::I64, shape)];
    let arguments = vec![
        ("self", x.into()),
        ("k", Value::int(k)),
        ("dim", Value::int(axis)),
        ("largest", flag(n.int("largest", 1) != 0)),
    ];
    n.aten_many("aten.topk", arguments, &results)
}
