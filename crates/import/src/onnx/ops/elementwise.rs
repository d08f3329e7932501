//! Elementwise functions.

use super::One;
use super::norm::per_channel;
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::item::Item;
use crate::onnx::node::{Node, float};
use crate::value::{Fault, Lowered, Value};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};

pub(super) const ONE: One = &[
    ("Abs", unary),
    ("Acos", unary),
    ("Acosh", unary),
    ("Asin", unary),
    ("Asinh", unary),
    ("Atan", unary),
    ("Atanh", unary),
    ("BitwiseNot", unary),
    ("Ceil", unary),
    ("Cos", unary),
    ("Cosh", unary),
    ("Erf", unary),
    ("Exp", unary),
    ("Floor", unary),
    ("HardSwish", unary),
    ("Log", unary),
    ("Mish", unary),
    ("Neg", unary),
    ("Reciprocal", unary),
    ("Relu", unary),
    ("Round", unary),
    ("Sigmoid", unary),
    ("Sign", unary),
    ("Sin", unary),
    ("Sinh", unary),
    ("Softsign", unary),
    ("Sqrt", unary),
    ("Tan", unary),
    ("Tanh", unary),
    ("Not", |n| Ok(Array { tensor: n.x()?.tensor.not(), ty: ScalarType::Bool })),
    ("IsNaN", |n| {
        let x = n.x()?;
        Ok(Array { tensor: n.cx.is_nan(&n.f32(&x)), ty: ScalarType::Bool })
    }),
    ("IsInf", is_infinite),
    ("Add", |n| binary(n, "aten.add")),
    ("Sub", |n| binary(n, "aten.sub")),
    ("Mul", |n| binary(n, "aten.mul")),
    ("Div", divide),
    ("Mod", modulo),
    ("Pow", power),
    ("And", |n| binary(n, "aten.logical_and")),
    ("Or", |n| binary(n, "aten.logical_or")),
    ("Xor", |n| binary(n, "aten.logical_xor")),
    ("BitwiseAnd", |n| binary(n, "aten.bitwise_and")),
    ("BitwiseOr", |n| binary(n, "aten.bitwise_or")),
    ("BitwiseXor", |n| binary(n, "aten.bitwise_xor")),
    ("BitShift", shift),
    ("Equal", |n| compare(n, "aten.eq")),
    ("Less", |n| compare(n, "aten.lt")),
    ("LessOrEqual", |n| compare(n, "aten.le")),
    ("Greater", |n| compare(n, "aten.gt")),
    ("GreaterOrEqual", |n| compare(n, "aten.ge")),
    ("Max", |n| variadic(n, |n, a, b| extreme(n, a, b, BinaryOp::Max))),
    ("Min", |n| variadic(n, |n, a, b| extreme(n, a, b, BinaryOp::Min))),
    ("Sum", |n| variadic(n, sum)),
    ("Mean", |n| {
        let sum = variadic(n, sum)?;
        n.stored(&(sum.tensor / n.inputs.len() as f64), sum.ty)
    }),
    ("Where", |n| {
        let [condition, a, b] = n.broadcast()?;
        let ty = a.ty;
        n.aten("aten.where", vec![("condition", condition.into()), ("self", a.into()), ("other", b.into())], ty, &[])
    }),
    ("Clip", clip),
    ("PRelu", |n| {
        let mut inputs = vec![n.array(0)?, n.array(1)?];
        // In operator set 6, a vector has one slope per channel.
        if n.version < 7 && inputs[0].rank() > 1 && inputs[1].rank() == 1 {
            inputs[1].tensor = per_channel(n, &inputs[1], inputs[0].rank())?;
        }
        let inputs = n.aligned(inputs, 0)?;
        let (x, slope) = (&inputs[0], &inputs[1]);
        let zero = n.cx.zero(&x.tensor);
        n.stored(&x.tensor.ge(&zero).select(&x.tensor, &(&x.tensor * &slope.tensor)), x.ty)
    }),
];

/// A function that has a similar name in ATen.
fn unary(n: &Node<'_>) -> Lowered<Array> {
    let base = match n.op {
        "BitwiseNot" => "aten.bitwise_not".to_owned(),
        op => format!("aten.{}", op.to_lowercase()),
    };
    let x = n.x()?;
    let ty = x.ty;
    n.aten(&base, vec![("self", x.into())], ty, &[])
}

fn binary(n: &Node<'_>, base: &str) -> Lowered<Array> {
    let [a, b] = n.broadcast()?;
    let ty = a.ty;
    n.aten(base, vec![("self", a.into()), ("other", b.into())], ty, &[])
}

/// Maps unsigned 64-bit integers to signed ones in the same order.
fn ordered(x: &Array) -> Tensor {
    if x.ty == ScalarType::U64 { &x.tensor + i64::MIN } else { x.tensor.clone() }
}

fn compare(n: &Node<'_>, base: &str) -> Lowered<Array> {
    let [a, b] = n.broadcast()?;
    let [a, b] = [a, b].map(|x| Value::Tensor(Array { tensor: ordered(&x), ty: x.ty }));
    n.aten(base, vec![("self", a), ("other", b)], ScalarType::Bool, &[])
}

fn is_infinite(n: &Node<'_>) -> Lowered<Array> {
    let x = n.f32(&n.x()?);
    let above = x.equal(f64::INFINITY);
    let below = x.equal(f64::NEG_INFINITY);
    let tensor = match (n.int("detect_positive", 1) != 0, n.int("detect_negative", 1) != 0) {
        (true, true) => above.or(below),
        (true, false) => above,
        (false, true) => below,
        (false, false) => above.and(below),
    };
    Ok(Array { tensor, ty: ScalarType::Bool })
}

/// Quotient and remainder of unsigned 64-bit integers.
fn unsigned_division(n: &Node<'_>, a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    let [one, zero] = [1i64, 0].map(|value| n.cx.scope.scalar(DType::I64, value));
    // Divides half of the dividend, which is not negative, then corrects by one step.
    let half = (a / 2i64).and(i64::MAX);
    let near = (half / b) * 2i64;
    let rest = a - &near * b;
    let reaches = (&rest + i64::MIN).ge(&(b + i64::MIN));
    let quotient = reaches.select(&(&near + 1i64), &near);
    let reaches = (a + i64::MIN).ge(&(b + i64::MIN));
    let quotient = b.lt(0i64).select(&reaches.select(&one, &zero), &quotient);
    let rest = a - &quotient * b;
    (quotient, rest)
}

fn divide(n: &Node<'_>) -> Lowered<Array> {
    let [a, b] = n.broadcast()?;
    let ty = a.ty;
    if ty == ScalarType::U64 {
        return Ok(Array { tensor: unsigned_division(n, &a.tensor, &b.tensor).0, ty });
    }
    let mut arguments = vec![("self", a.into()), ("other", b.into())];
    if !ty.is_float() {
        arguments.push(("rounding_mode", Value::String("trunc".to_owned())));
    }
    n.aten("aten.div", arguments, ty, &[])
}

fn modulo(n: &Node<'_>) -> Lowered<Array> {
    let [a, b] = n.broadcast()?;
    if a.ty == ScalarType::U64 {
        return Ok(Array { tensor: unsigned_division(n, &a.tensor, &b.tensor).1, ty: a.ty });
    }
    binary(n, if n.is("fmod") { "aten.fmod" } else { "aten.remainder" })
}

/// The only element of an input, if it is known.
fn known(item: &Item) -> Option<f64> {
    match item {
        Item::Constant(constant) if constant.data.tensor.len() == 1 && constant.data.tensor.shape().is_empty() => {
            constant.data.tensor.to_f64().first().copied()
        }
        _ => None,
    }
}

fn power(n: &Node<'_>) -> Lowered<Array> {
    let [x, exponent] = n.broadcast()?;
    let ty = x.ty;
    let own: Value = match known(n.item(1)) {
        Some(value) if ty.is_float() => float(value),
        Some(value) if !exponent.ty.is_float() => Value::int(value as i64),
        _ if ty.is_float() => n.cx.cast(&exponent, ty).into(),
        _ if exponent.ty.is_float() => {
            let base = n.cx.cast(&x, ScalarType::F32);
            let arguments = vec![("self", base.into()), ("exponent", exponent.into())];
            let y = n.aten("aten.pow", arguments, ScalarType::F32, &[])?;
            return Ok(n.cx.cast(&y, ty));
        }
        _ => n.cx.cast(&exponent, ty).into(),
    };
    n.aten("aten.pow", vec![("self", x.into()), ("exponent", own)], ty, &[])
}

fn shift(n: &Node<'_>) -> Lowered<Array> {
    let [a, b] = n.broadcast()?;
    let is_left = match n.text("direction", "").as_str() {
        "LEFT" => true,
        "RIGHT" => false,
        other => return Fault::program(format!("direction=`{other}`")),
    };
    let ty = a.ty;
    let base = if is_left { "aten.bitwise_left_shift" } else { "aten.bitwise_right_shift" };
    let shifted = |a: Tensor, b: Tensor| {
        let [a, b] = [a, b].map(|tensor| Value::Tensor(Array { tensor, ty }));
        n.aten(base, vec![("self", a), ("other", b)], ty, &[])
    };
    if ty == ScalarType::U64 && !is_left {
        // Shifts by one bit first, which clears the sign, then by the remaining bits.
        let half = (&a.tensor / 2i64).and(i64::MAX);
        let rest = shifted(half, (&b.tensor - 1i64).maximum(0i64))?;
        return Ok(Array { tensor: b.tensor.equal(0i64).select(&a.tensor, &rest.tensor), ty });
    }
    shifted(a.tensor, b.tensor)
}

/// Folds a binary function over all inputs.
fn variadic(n: &Node<'_>, f: fn(&Node<'_>, &Array, &Array) -> Lowered<Array>) -> Lowered<Array> {
    let mut arrays = n.aligned(n.arrays()?, 0)?.into_iter();
    let first = arrays.next().ok_or_else(|| Fault::Program(format!("{}: no inputs", n.op)))?;
    arrays.try_fold(first, |result, next| f(n, &result, &next))
}

fn sum(n: &Node<'_>, a: &Array, b: &Array) -> Lowered<Array> {
    n.stored(&(&a.tensor + &b.tensor), a.ty)
}

fn extreme(n: &Node<'_>, a: &Array, b: &Array, op: BinaryOp) -> Lowered<Array> {
    if a.ty == ScalarType::U64 {
        return Ok(Array { tensor: ordered(a).binary(op, &ordered(b)) + i64::MIN, ty: a.ty });
    }
    let y = a.tensor.binary(op, &b.tensor);
    if !a.ty.is_float() {
        return n.stored(&y, a.ty);
    }
    let y = n.cx.is_nan(&a.tensor).select(&a.tensor, &y);
    n.stored(&n.cx.is_nan(&b.tensor).select(&b.tensor, &y), a.ty)
}

fn clip(n: &Node<'_>) -> Lowered<Array> {
    let x = n.x()?;
    let ty = x.ty;
    let mut arguments: Vec<(&str, Value)> = vec![("self", x.into())];
    for (name, place) in [("min", 1), ("max", 2)] {
        match (n.attribute(name), n.optional(place)?) {
            (Some(_), _) => arguments.push((name, n.cx.scalar(n.float(name, 0.0), ty)?.into())),
            (None, Some(limit)) => {
                let tensor = n.cx.reshape(&limit.tensor, &[])?;
                arguments.push((name, Array { tensor, ty: limit.ty }.into()));
            }
            (None, None) => {}
        }
    }
    if ty == ScalarType::U64 {
        return Fault::unsupported("unsigned integers of 64 bits");
    }
    n.aten("aten.clamp", arguments, ty, &[])
}
