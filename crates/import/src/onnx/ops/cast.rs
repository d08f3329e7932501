//! Conversions of types.

use super::One;
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::node::Node;
use crate::value::{Fault, Lowered};
use rewire_graph::Tensor;

pub(super) const ONE: One = &[
    ("Cast", |n| {
        let code = i32::try_from(n.int("to", 0)).unwrap_or(0);
        let ty = ScalarType::of_onnx(code).ok_or_else(|| Fault::Unsupported(format!("the type {code}")))?;
        convert(n, &n.x()?, ty)
    }),
    ("CastLike", |n| {
        let like = match n.item(1) {
            crate::onnx::item::Item::Constant(constant) => constant.data.ty,
            _ => n.array(1)?.ty,
        };
        convert(n, &n.x()?, like)
    }),
    ("BitCast", |n| {
        let code = i32::try_from(n.int("to", 0)).unwrap_or(0);
        let x = n.x()?;
        match ScalarType::of_onnx(code) {
            Some(ty) if ty.is_integer() && x.ty.is_integer() && ty.bits() == x.ty.bits() => Ok(n.cx.cast(&x, ty)),
            Some(ty) if ty == x.ty => Ok(x),
            // A bool is stored as a byte that is 0 or 1.
            Some(ty) if ty.is_integer() && x.ty == ScalarType::Bool && ty.bits() == 8 => Ok(n.cx.cast(&x, ty)),
            Some(ty @ (ScalarType::I32 | ScalarType::F32)) if matches!(x.ty, ScalarType::F32 | ScalarType::I32) => {
                Ok(Array { tensor: crate::aten::bits(n.cx, &x.tensor)?, ty })
            }
            _ => Fault::unsupported("bits of these types"),
        }
    }),
];

fn convert(n: &Node<'_>, x: &Array, ty: ScalarType) -> Lowered<Array> {
    let is_minifloat = ty.is_float() && ty.bits() <= 8;
    if !is_minifloat || x.ty == ty {
        return Ok(n.cx.cast(x, ty));
    }
    let x = n.f32(x);
    if ty == ScalarType::F8E8M0 {
        return Ok(Array { tensor: power_of_two(n, &x)?, ty });
    }
    Ok(Array { tensor: n.cx.narrowed(&x, ty, n.int("saturate", 1) != 0), ty })
}

/// Rounds positive numbers to a power of two: up, down or to the nearest, as the attribute requests.
fn power_of_two(n: &Node<'_>, x: &Tensor) -> Lowered<Tensor> {
    let mode = n.text("round_mode", "up");
    let (mut power, least) = (n.cx.f(2f64.powi(-126)), 2f64.powi(-126));
    for step in [126, 64, 32, 16, 8, 4, 2, 1] {
        let next = &power * 2f64.powi(step);
        power = x.ge(&next).select(&next, &power);
    }
    let above = match mode.as_str() {
        "up" => x.gt(&power),
        "down" => x.lt(0.0),
        "nearest" => x.ge(&(&power * 1.5)),
        other => return Fault::unsupported(format!("round_mode=`{other}`")),
    };
    let most = 2f64.powi(127);
    let is_last = power.ge(most);
    let next = above.and(is_last.not()).select(&(&power * 2.0), &power);
    let next = x.lt(least).select(&n.cx.f(least), &next);
    Ok(n.cx.is_nan(x).select(x, &next))
}
