//! Activation functions.

use super::One;
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::node::{Node, float};
use crate::size::Size;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("Elu", |n| named(n, "aten.elu", vec![("alpha", float(n.float("alpha", 1.0)))])),
    ("Celu", |n| named(n, "aten.celu", vec![("alpha", float(n.float("alpha", 1.0)))])),
    ("LeakyRelu", |n| named(n, "aten.leaky_relu", vec![("negative_slope", float(n.float("alpha", 0.01)))])),
    ("Softplus", |n| named(n, "aten.softplus", vec![])),
    ("Gelu", |n| named(n, "aten.gelu", vec![("approximate", Value::String(n.text("approximate", "none")))])),
    ("com.microsoft.Gelu", |n| named(n, "aten.gelu", vec![])),
    ("com.microsoft.FastGelu", |n| {
        let x = n.x()?;
        let sum = match n.optional(1)? {
            Some(bias) => &x.tensor + &bias.tensor,
            None => x.tensor.clone(),
        };
        n.stored(&sum.gelu_tanh(), x.ty)
    }),
    ("com.microsoft.BiasGelu", |n| {
        let (x, bias) = (n.x()?, n.array(1)?);
        n.stored(&(&x.tensor + &bias.tensor).gelu_erf(), x.ty)
    }),
    ("com.microsoft.QuickGelu", |n| gated(n, 1.702)),
    ("Swish", |n| gated(n, 1.0)),
    ("Selu", |n| {
        pointwise(n, |n, x| {
            let (alpha, gamma) = (n.float("alpha", 1.673_263_192_176_818_8), n.float("gamma", 1.050_701_022_148_132_3));
            let below = n.cx.expm1(x) * (alpha * gamma);
            x.gt(0.0).select(&(x * gamma), &below)
        })
    }),
    ("ThresholdedRelu", |n| pointwise(n, |n, x| x.gt(n.float("alpha", 1.0)).select(x, &n.cx.f(0.0)))),
    ("HardSigmoid", |n| {
        pointwise(n, |n, x| (x * n.float("alpha", 0.2) + n.float("beta", 0.5)).maximum(0.0).minimum(1.0))
    }),
    ("Shrink", shrink),
    ("Softmax", |n| softmax(n, "aten.softmax", -1)),
    ("LogSoftmax", |n| softmax(n, "aten.log_softmax", -1)),
    ("Hardmax", hardmax),
];

/// An ATen operator on the first input, with additional arguments.
fn named(n: &Node<'_>, base: &str, others: Vec<(&str, Value)>) -> Lowered<Array> {
    let x = n.x()?;
    let ty = x.ty;
    let arguments = std::iter::once(("self", x.into())).chain(others).collect();
    n.aten(base, arguments, ty, &[])
}

/// Applies a float function to the first input.
fn pointwise(n: &Node<'_>, f: fn(&Node<'_>, &Tensor) -> Tensor) -> Lowered<Array> {
    let x = n.x()?;
    if !x.ty.is_float() {
        return Fault::unsupported("integers");
    }
    n.stored(&f(n, &x.tensor), x.ty)
}

/// `x sigmoid(alpha x)`
fn gated(n: &Node<'_>, default: f64) -> Lowered<Array> {
    let (x, alpha) = (n.x()?, n.float("alpha", default));
    let y = if alpha == 1.0 { x.tensor.silu() } else { &x.tensor * (&x.tensor * alpha).sigmoid() };
    n.stored(&y, x.ty)
}

fn shrink(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let (limit, bias) = (n.float("lambd", 0.5), n.float("bias", 0.0));
    let y = n.f32(&x);
    let below = y.lt(-limit).select(&(&y + bias), &n.cx.f(0.0));
    let y = y.gt(limit).select(&(&y - bias), &below);
    Ok(n.cast(&y, x.ty))
}

/// Before operator set 13, softmax is computed over all axes from `axis` on.
fn softmax(n: &Node<'_>, base: &str, default: i64) -> Lowered<Array> {
    let x = n.x()?;
    let default = if n.version < 13 { 1 } else { default };
    let axis = n.axis("axis", default, x.rank())?;
    let (shape, ty) = (n.shape(&x), x.ty);
    if n.version >= 13 || axis + 1 == x.rank() {
        return n.aten(base, vec![("self", x.into()), ("dim", Value::int(axis))], ty, &shape);
    }
    let y = n.aten(base, vec![("self", flat(n, &x, axis)?.into()), ("dim", Value::int(1))], ty, &[])?;
    Ok(Array { tensor: n.cx.reshape(&y.tensor, &shape)?, ty })
}

/// Flattens a tensor to two axes: the axes before `axis`, and the others.
fn flat(n: &Node<'_>, x: &Array, axis: usize) -> Lowered<Array> {
    let shape = n.shape(x);
    let matrix = [Size::product(&shape[..axis]), Size::product(&shape[axis..])];
    Ok(Array { tensor: n.cx.reshape(&x.tensor, &matrix)?, ty: x.ty })
}

fn hardmax(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let shape = n.shape(&x);
    let axis = n.axis("axis", if n.version < 13 { 1 } else { -1 }, x.rank())?;
    let (own, axis) = if n.version < 13 { (flat(n, &x, axis)?, 1) } else { (x.clone(), axis) };
    let arguments =
        vec![("self", own.clone().into()), ("dim", Value::int(axis)), ("keepdim", crate::onnx::node::flag(true))];
    let first = n.aten("aten.argmax", arguments, ScalarType::I64, &[])?;
    let hits = first.tensor.equal(&n.cx.positions(&n.shape(&own), axis)?);
    let y = n.cx.expand(&hits.cast(DType::F32), &n.shape(&own))?;
    n.stored(&n.cx.reshape(&y, &shape)?, x.ty)
}
