//! Normalizations.

use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::item::Item;
use crate::onnx::node::{Node, float};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;
use rewire_graph::op::IndexExpr;
use rewire_graph::pointwise::BinaryOp;

pub(super) const ONE: One = &[
    ("InstanceNormalization", |n| {
        let (x, scale, bias) = (n.x()?, n.array(1)?, n.array(2)?);
        let ty = x.ty;
        let arguments = vec![
            ("self", x.into()),
            ("weight", scale.into()),
            ("bias", bias.into()),
            ("eps", float(n.float("epsilon", 1e-5))),
        ];
        n.aten("aten.instance_norm", arguments, ty, &[])
    }),
    ("GroupNormalization", group),
    ("RMSNormalization", |n| {
        let (x, scale) = (n.x()?, n.array(1)?);
        let axis = n.axis("axis", -1, x.rank())?;
        let y = root_mean(n, &x, axis, n.float("epsilon", 1e-5))?;
        n.stored(&(y * &scale.tensor), x.ty)
    }),
    ("LpNormalization", |n| {
        let x = n.x()?;
        let axis = n.axis("axis", -1, x.rank())?;
        let magnitude = match n.int("p", 2) {
            1 => x.tensor.abs().sum(axis),
            2 => x.tensor.square().sum(axis).sqrt(),
            other => return Fault::unsupported(format!("p={other}")),
        };
        let zero = n.cx.f(0.0);
        n.stored(&magnitude.equal(0.0).select(&zero, &(&x.tensor / &magnitude)), x.ty)
    }),
    ("MeanVarianceNormalization", |n| {
        let x = n.x()?;
        let axes = n.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
        let axes = axes.iter().map(|&dim| crate::onnx::node::axis(dim, x.rank())).collect::<Lowered<Vec<_>>>()?;
        let (mean, variance) = moments(n, &x.tensor, &axes)?;
        n.stored(&((&x.tensor - mean) / (variance.sqrt() + 1e-9)), x.ty)
    }),
    ("LRN", local_response),
    ("com.microsoft.SimplifiedLayerNormalization", simplified),
    ("SimplifiedLayerNormalization", simplified),
];

pub(super) const MANY: Many = &[
    ("BatchNormalization", batch),
    ("LayerNormalization", |n| {
        let x = n.x()?;
        let axis = n.axis("axis", -1, x.rank())?;
        let axes: Vec<usize> = (axis..x.rank()).collect();
        let eps = n.float("epsilon", 1e-5);
        if !n.gives(1) && !n.gives(2) {
            return Ok(vec![Item::Array(layer(n, &x, n.array(1)?, n.optional(2)?, axis, eps)?)]);
        }
        let (mean, variance) = moments(n, &n.f32(&x), &axes)?;
        let inverse = (variance + eps).rsqrt();
        let y = (n.f32(&x) - &mean) * &inverse * n.array(1)?.tensor;
        let y = match n.optional(2)? {
            Some(bias) => y + bias.tensor,
            None => y,
        };
        let statistic = |tensor: Tensor| Item::Array(Array { tensor, ty: ScalarType::F32 });
        Ok(vec![Item::Array(n.stored(&y, x.ty)?), statistic(mean), statistic(inverse)])
    }),
    ("com.microsoft.SkipLayerNormalization", |n| {
        let (x, skip) = (n.x()?, n.array(1)?);
        let mut sum = &x.tensor + &skip.tensor;
        if let Some(bias) = n.optional(4)? {
            sum = sum + bias.tensor;
        }
        let sum = Array { tensor: sum, ty: ScalarType::F32 };
        let y = layer(n, &sum, n.array(2)?, n.optional(3)?, x.rank() - 1, n.float("epsilon", 1e-12))?;
        Ok(vec![n.stored(&y.tensor, x.ty)?.into(), Item::Absent, Item::Absent, n.stored(&sum.tensor, x.ty)?.into()])
    }),
    ("com.microsoft.SkipSimplifiedLayerNormalization", |n| {
        let (x, skip) = (n.x()?, n.array(1)?);
        let mut sum = &x.tensor + &skip.tensor;
        if let Some(bias) = n.optional(3)? {
            sum = sum + bias.tensor;
        }
        let sum = Array { tensor: sum, ty: ScalarType::F32 };
        let y = root_mean(n, &sum, x.rank() - 1, n.float("epsilon", 1e-5))? * n.array(2)?.tensor;
        Ok(vec![n.stored(&y, x.ty)?.into(), Item::Absent, Item::Absent, n.stored(&sum.tensor, x.ty)?.into()])
    }),
];

/// Mean and variance over axes, which keep extent 1.
fn moments(n: &Node<'_>, x: &Tensor, axes: &[usize]) -> Lowered<(Tensor, Tensor)> {
    crate::aten::moments(n.cx, x, axes, 0.0)
}

/// Divides by the root mean square over the axes from `axis` on.
fn root_mean(n: &Node<'_>, x: &Array, axis: usize, eps: f64) -> Lowered<Tensor> {
    let axes: Vec<usize> = (axis..x.rank()).collect();
    let x = n.f32(x);
    let square = crate::aten::mean(n.cx, &x.square(), &axes)?;
    Ok(&x * (square + eps).rsqrt())
}

fn simplified(n: &Node<'_>) -> Lowered<Array> {
    let (x, scale) = (n.x()?, n.array(1)?);
    let axis = n.axis("axis", -1, x.rank())?;
    let y = root_mean(n, &x, axis, n.float("epsilon", 1e-5))?;
    n.stored(&(y * &scale.tensor), x.ty)
}

/// Layer norm over the axes from `axis` on.
pub(super) fn layer(
    n: &Node<'_>,
    x: &Array,
    scale: Array,
    bias: Option<Array>,
    axis: usize,
    eps: f64,
) -> Lowered<Array> {
    let inner = n.shape(x)[axis..].iter().cloned().map(Value::int).collect();
    let mut arguments = vec![
        ("self", x.clone().into()),
        ("normalized_shape", Value::List(inner)),
        ("weight", scale.into()),
        ("eps", float(eps)),
    ];
    if let Some(bias) = bias {
        arguments.push(("bias", bias.into()));
    }
    n.aten("aten.layer_norm", arguments, x.ty, &[])
}

fn group(n: &Node<'_>) -> Lowered<Array> {
    let (x, scale, bias) = (n.x()?, n.array(1)?, n.array(2)?);
    let ty = x.ty;
    let groups = n.int("num_groups", 1);
    let channels = n.shape(&x).get(1).cloned().unwrap_or_default();
    // Before operator set 21 there is one scale per group.
    let each = n.cx.quotient(&channels, &groups.into())?;
    let spread = |x: Array| -> Lowered<Array> {
        if n.version >= 21 {
            return Ok(x);
        }
        let column = n.cx.unsqueeze(&x.tensor, 1)?;
        let wide = n.cx.expand(&column, &[groups.into(), each.clone()])?;
        Ok(Array { tensor: n.cx.reshape(&wide, std::slice::from_ref(&channels))?, ty: x.ty })
    };
    let arguments = vec![
        ("self", x.into()),
        ("num_groups", Value::int(groups)),
        ("weight", spread(scale)?.into()),
        ("bias", spread(bias)?.into()),
        ("eps", float(n.float("epsilon", 1e-5))),
    ];
    n.aten("aten.group_norm", arguments, ty, &[])
}

/// A vector in a shape that broadcasts along the channel axis.
pub(super) fn per_channel(n: &Node<'_>, vector: &Array, rank: usize) -> Lowered<Tensor> {
    let mut shape = vec![Size::from(1); rank.saturating_sub(1).max(1)];
    shape[0] = n.shape(vector).first().cloned().unwrap_or_else(|| 1.into());
    n.cx.reshape(&vector.tensor, &shape)
}

fn batch(n: &Node<'_>) -> Lowered<Vec<Item>> {
    let [x, scale, bias, mean, variance] = [n.array(0)?, n.array(1)?, n.array(2)?, n.array(3)?, n.array(4)?];
    let (eps, momentum) = (n.float("epsilon", 1e-5), n.float("momentum", 0.9));
    let rank = x.rank();
    if n.version < 7 && !n.is("is_test") {
        return Fault::unsupported("training");
    }
    if n.int("spatial", 1) == 0 {
        return Fault::unsupported("statistics of each element");
    }
    if !n.is("training_mode") {
        let ty = x.ty;
        let arguments = vec![
            ("self", x.into()),
            ("weight", scale.into()),
            ("bias", bias.into()),
            ("running_mean", mean.into()),
            ("running_var", variance.into()),
            ("eps", float(eps)),
        ];
        return Ok(vec![Item::Array(n.aten("aten.batch_norm", arguments, ty, &[])?)]);
    }
    let axes: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let (own_mean, own_variance) = moments(n, &n.f32(&x), &axes)?;
    let y = (n.f32(&x) - &own_mean) * (&own_variance + eps).rsqrt();
    let y = y * per_channel(n, &scale, rank)? + per_channel(n, &bias, rank)?;
    let running = |old: &Array, new: &Tensor| -> Lowered<Item> {
        let new = n.cx.reshape(new, &n.shape(old))?;
        Ok(n.stored(&(&old.tensor * momentum + new * (1.0 - momentum)), old.ty)?.into())
    };
    Ok(vec![n.stored(&y, x.ty)?.into(), running(&mean, &own_mean)?, running(&variance, &own_variance)?])
}

fn local_response(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let size = n.int("size", 1);
    if !(1..=1 << 16).contains(&size) {
        return Fault::program("LRN: a size of no channels");
    }
    let shape = n.shape(&x);
    let mut all = shape.clone();
    all.push(Size::from(size));
    let mut index: Vec<IndexExpr> = (0..x.rank()).map(crate::context::coord).collect();
    let start = index[1].clone().binary(BinaryOp::Sub, (size - 1) / 2);
    index[1] = start.binary(BinaryOp::Add, crate::context::coord(x.rank()));
    let square = n.f32(&x).square();
    let windows = n.cx.remap(&square, &all, index, Some(&n.cx.f(0.0)), &[])?;
    let sum = n.cx.squeeze(&windows.sum(x.rank()), x.rank())?;
    let base = sum * (n.float("alpha", 1e-4) / size as f64) + n.float("bias", 1.0);
    n.stored(&(n.f32(&x) / base.pow(n.float("beta", 0.75))), x.ty)
}
