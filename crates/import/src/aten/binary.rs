//! Elementwise functions of several tensors or numbers, and type promotion.

use super::One;
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::value::{Fault, Lowered, Number, Value};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{DType, Tensor};
use std::f64::consts::LN_2;

pub(super) const ONE: One = &[
    ("aten.add", |c| scaled(c, BinaryOp::Add)),
    ("aten.sub", |c| scaled(c, BinaryOp::Sub)),
    ("aten.subtract", |c| scaled(c, BinaryOp::Sub)),
    ("aten.rsub", rsub),
    ("aten.mul", |c| arithmetic(c, BinaryOp::Mul)),
    ("aten.multiply", |c| arithmetic(c, BinaryOp::Mul)),
    ("aten.div", divide),
    ("aten.divide", divide),
    ("aten.true_divide", divide),
    ("aten.floor_divide", |c| divided(c, "floor")),
    ("aten.remainder", |c| modulo(c, true)),
    ("aten.fmod", |c| modulo(c, false)),
    ("aten.pow", pow),
    ("aten.float_power", pow),
    ("aten.maximum", |c| arithmetic(c, BinaryOp::Max)),
    ("aten.minimum", |c| arithmetic(c, BinaryOp::Min)),
    ("aten.max.other", |c| arithmetic(c, BinaryOp::Max)),
    ("aten.min.other", |c| arithmetic(c, BinaryOp::Min)),
    ("aten.fmax", |c| without_nan(c, BinaryOp::Max)),
    ("aten.fmin", |c| without_nan(c, BinaryOp::Min)),
    ("aten.eq", |c| compare(c, BinaryOp::Eq)),
    ("aten.ne", |c| compare(c, BinaryOp::Ne)),
    ("aten.not_equal", |c| compare(c, BinaryOp::Ne)),
    ("aten.lt", |c| compare(c, BinaryOp::Lt)),
    ("aten.less", |c| compare(c, BinaryOp::Lt)),
    ("aten.le", |c| compare(c, BinaryOp::Le)),
    ("aten.less_equal", |c| compare(c, BinaryOp::Le)),
    ("aten.gt", |c| compare(c, BinaryOp::Gt)),
    ("aten.greater", |c| compare(c, BinaryOp::Gt)),
    ("aten.ge", |c| compare(c, BinaryOp::Ge)),
    ("aten.greater_equal", |c| compare(c, BinaryOp::Ge)),
    ("aten.logical_and", |c| logical(c, |a, b| a.and(b))),
    ("aten.logical_or", |c| logical(c, |a, b| a.or(b))),
    ("aten.logical_xor", |c| logical(c, |a, b| a.not_equal(b))),
    ("aten.bitwise_and", |c| arithmetic(c, BinaryOp::And)),
    ("aten.bitwise_or", |c| arithmetic(c, BinaryOp::Or)),
    ("aten.bitwise_xor", bitwise_xor),
    ("aten.__and__", |c| arithmetic(c, BinaryOp::And)),
    ("aten.__or__", |c| arithmetic(c, BinaryOp::Or)),
    ("aten.__xor__", bitwise_xor),
    ("aten.bitwise_left_shift", |c| shift(c, true)),
    ("aten.bitwise_right_shift", |c| shift(c, false)),
    ("aten.__lshift__", |c| shift(c, true)),
    ("aten.__rshift__", |c| shift(c, false)),
    ("aten.atan2", |c| floats2(c, |c, y, x| c.cx.atan2(y, x))),
    ("aten.arctan2", |c| floats2(c, |c, y, x| c.cx.atan2(y, x))),
    ("aten.logaddexp", |c| floats2(c, |c, a, b| log_add(c, a, b, 1.0))),
    ("aten.logaddexp2", |c| floats2(c, |c, a, b| log_add(c, a, b, LN_2))),
    ("aten.hypot", |c| floats2(c, |_, a, b| (a.square() + b.square()).sqrt())),
    ("aten.copysign", |c| floats2(c, |c, a, b| c.cx.with_sign(&a.abs(), b))),
    ("aten.xlogy", |c| floats2(c, x_log_y)),
    ("aten.special_xlogy", |c| floats2(c, x_log_y)),
    ("aten.special_xlog1py", |c| floats2(c, |c, x, y| x_log_y(c, x, &(y + 1.0)))),
    ("aten.ldexp", |c| floats2(c, |_, x, power| x * (power * LN_2).exp())),
    ("aten.gcd", |c| common_divisor(c, |c, _, divisor| c.result(divisor))),
    ("aten.lcm", |c| {
        common_divisor(c, |c, [a, b], divisor| {
            let one = divisor.equal(0i64).select(&c.cx.scope.scalar(divisor.dtype(), 1i64), divisor);
            c.result(&(a / one * b).abs())
        })
    }),
    ("aten.heaviside", heaviside),
    ("aten.lerp", lerp),
    ("aten.addcmul", |c| addc(c, |a, b| a * b)),
    ("aten.addcdiv", |c| addc(c, |a, b| a / b)),
    ("aten.where", where_),
    ("aten.clamp", clamp),
    ("aten.clip", clamp),
    ("aten.clamp_min", |c| clamp_one(c, "min", BinaryOp::Max)),
    ("aten.clamp_max", |c| clamp_one(c, "max", BinaryOp::Min)),
    ("aten.masked_fill", masked_fill),
    ("aten.isclose", isclose),
];

/// An operand of arithmetic.
pub(super) enum Operand {
    Array(Array),
    Number(Number),
}

pub(super) fn operand(c: &Call<'_>, name: &str) -> Lowered<Operand> {
    match c.get(name) {
        Some(Value::Tensor(array)) => Ok(Operand::Array(array.clone())),
        Some(Value::Number(number)) => Ok(Operand::Number(number.clone())),
        _ => Fault::program(format!("{}: the argument `{name}` is not a tensor or number", c.base)),
    }
}

/// The promoted type of operands. Tensors with axes have the highest priority, then 0-dim tensors, then numbers.
pub(super) fn common_type(c: &Call<'_>, operands: &[&Operand]) -> ScalarType {
    let mut levels: [Option<ScalarType>; 3] = [None; 3];
    for operand in operands {
        let (level, ty) = match operand {
            Operand::Array(array) => (usize::from(array.rank() == 0), array.ty),
            Operand::Number(number) => (2, c.cx.type_of(number)),
        };
        levels[level] = Some(levels[level].map_or(ty, |other| other.promote(ty)));
    }
    let weaker = levels.into_iter().flatten().reduce(ScalarType::promote_weak);
    weaker.unwrap_or(ScalarType::F32)
}

/// An operand converted to a type for arithmetic.
pub(super) fn computed(c: &Call<'_>, operand: &Operand, ty: ScalarType) -> Lowered<Tensor> {
    match operand {
        Operand::Array(array) => Ok(c.cx.cast(array, ty).tensor),
        Operand::Number(number) => {
            let exact = if ty.is_float() { ScalarType::F32 } else { ty };
            Ok(c.cx.number(number, exact)?.tensor)
        }
    }
}

/// The operands `self` and `other` in their promoted type, and that type.
fn pair(c: &Call<'_>) -> Lowered<(Tensor, Tensor, ScalarType)> {
    let names = if c.arguments.contains_key("self") { ["self", "other"] } else { ["input", "other"] };
    named_pair(c, names)
}

fn named_pair(c: &Call<'_>, names: [&str; 2]) -> Lowered<(Tensor, Tensor, ScalarType)> {
    let [a, b] = [operand(c, names[0])?, operand(c, names[1])?];
    let ty = common_type(c, &[&a, &b]);
    Ok((computed(c, &a, ty)?, computed(c, &b, ty)?, ty))
}

fn arithmetic(c: &Call<'_>, op: BinaryOp) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let y = match (ty, op) {
        (ScalarType::Bool, BinaryOp::Mul | BinaryOp::Min) => a.and(&b),
        (ScalarType::Bool, BinaryOp::Max) => a.or(&b),
        _ => a.binary(op, &b),
    };
    c.result(&y)
}

fn scaled(c: &Call<'_>, op: BinaryOp) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    if ty == ScalarType::Bool {
        return if op == BinaryOp::Add { c.result(&a.or(&b)) } else { Fault::unsupported("bools") };
    }
    let b = if c.has("alpha") { &b * &computed(c, &operand(c, "alpha")?, ty)? } else { b };
    c.result(&a.binary(op, &b))
}

fn rsub(c: &Call<'_>) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let a = if c.has("alpha") { &a * &computed(c, &operand(c, "alpha")?, ty)? } else { a };
    c.result(&(b - a))
}

fn divide(c: &Call<'_>) -> Lowered<Array> {
    let mode = c.string_or("rounding_mode", "")?;
    divided(c, &mode)
}

fn divided(c: &Call<'_>, mode: &str) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    if ty.is_float() {
        let quotient = a / b;
        return c.result(&match mode {
            "floor" => quotient.floor(),
            "trunc" => quotient.trunc(),
            _ => quotient,
        });
    }
    let y = match mode {
        "floor" => a / b,
        "trunc" => truncated(&a, &b),
        _ => a.cast(DType::F32) / b.cast(DType::F32),
    };
    c.result(&y)
}

/// The quotient of integers, rounded toward 0.
fn truncated(a: &Tensor, b: &Tensor) -> Tensor {
    let magnitude = a.abs() / b.abs();
    a.lt(0i64).not_equal(b.lt(0i64)).select(&-&magnitude, &magnitude)
}

fn modulo(c: &Call<'_>, is_floored: bool) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let y = match (is_floored, ty.is_float()) {
        (true, false) => a.modulo(&b),
        (false, false) => &a - &(truncated(&a, &b) * &b),
        (_, true) => {
            let rest = &a - &((&a / &b).trunc() * &b);
            // With an infinite divisor the remainder is the dividend.
            let rest = b.abs().equal(f64::INFINITY).and(a.abs().lt(f64::INFINITY)).select(&a, &rest);
            let other_sign = rest.not_equal(0.0).and(rest.lt(0.0).not_equal(b.lt(0.0)));
            if is_floored { other_sign.select(&(&rest + &b), &rest) } else { rest }
        }
    };
    c.result(&y)
}

fn pow(c: &Call<'_>) -> Lowered<Array> {
    let [a, b] = [operand(c, "self")?, operand(c, "exponent")?];
    let ty = if c.base == "aten.float_power" { ScalarType::F64 } else { common_type(c, &[&a, &b]) };
    let base = computed(c, &a, ty)?;
    let constant = match &b {
        Operand::Number(Number::Float(value)) => Some(*value),
        Operand::Number(Number::Int(size)) => size.as_const().map(|value| value as f64),
        _ => None,
    };
    let y = match constant {
        Some(value) if value.fract() == 0.0 && (0.0..=16.0).contains(&value) => {
            let mut power = None;
            for _ in 0..value as usize {
                power = Some(power.map_or_else(|| base.clone(), |power: Tensor| power * &base));
            }
            power.map_or_else(|| c.cx.expand(&computed(c, &one(), ty)?, &c.cx.shape(&base)), Ok)?
        }
        Some(0.5) if ty.is_float() => base.sqrt(),
        Some(-0.5) if ty.is_float() => base.rsqrt(),
        Some(-1.0) if ty.is_float() => c.cx.f(1.0) / base,
        Some(-2.0) if ty.is_float() => c.cx.f(1.0) / base.square(),
        _ if ty.is_float() => float_power(c, &base, &computed(c, &b, ty)?),
        _ => integer_power(c, &base, &computed(c, &b, ty)?, ty)?,
    };
    c.result(&y)
}

fn one() -> Operand {
    Operand::Number(Number::Int(1.into()))
}

fn float_power(c: &Call<'_>, base: &Tensor, exponent: &Tensor) -> Tensor {
    let power = base.abs().pow(exponent);
    let whole = exponent.equal(&exponent.floor());
    let odd = (exponent * 0.5).floor().not_equal(&(exponent * 0.5));
    let negative = whole.and(odd).select(&-&power, &power);
    let negative = whole.select(&negative, &c.cx.f(f64::NAN));
    let y = base.lt(0.0).select(&negative, &power);
    let is_one = exponent.equal(0.0).or(base.equal(1.0));
    is_one.select(&c.cx.f(1.0), &y)
}

/// Integer powers by squaring. Negative exponents give 0, except for a base of 1 or -1.
fn integer_power(c: &Call<'_>, base: &Tensor, exponent: &Tensor, ty: ScalarType) -> Lowered<Tensor> {
    let one = computed(c, &one(), ty)?;
    let (mut power, mut square, mut rest) = (one.clone(), base.clone(), exponent.abs());
    for _ in 0..6 {
        let odd = rest.modulo(2i64).equal(1i64);
        power = odd.select(&(&power * &square), &power);
        square = &square * &square;
        rest = rest / 2i64;
    }
    let parity = exponent.abs().modulo(2i64).equal(0i64);
    let unit = base.abs().equal(1i64);
    let signed = base.equal(1i64).or(parity).select(&one, &-&one);
    let large = exponent.abs().gt(63i64).and(base.not_equal(0i64)).select(&c.cx.zero(base), &power);
    let y = exponent.lt(0i64).select(&c.cx.zero(base), &large);
    Ok(unit.select(&signed, &y))
}

fn without_nan(c: &Call<'_>, op: BinaryOp) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let y = a.binary(op, &b);
    if !ty.is_float() {
        return c.result(&y);
    }
    let y = c.cx.is_nan(&b).select(&a, &y);
    c.result(&c.cx.is_nan(&a).select(&b, &y))
}

fn compare(c: &Call<'_>, op: BinaryOp) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let is_order = !matches!(op, BinaryOp::Eq | BinaryOp::Ne);
    let (a, b) = if ty == ScalarType::Bool && is_order { (a.cast(DType::I32), b.cast(DType::I32)) } else { (a, b) };
    c.result(&a.binary(op, &b))
}

fn logical(c: &Call<'_>, f: fn(&Tensor, &Tensor) -> Tensor) -> Lowered<Array> {
    let [a, b] = ["self", "other"].map(|name| c.tensor(name).map(|x| c.cx.cast(&x, ScalarType::Bool).tensor));
    c.result(&f(&a?, &b?))
}

fn bitwise_xor(c: &Call<'_>) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    c.result(&if ty == ScalarType::Bool { a.not_equal(&b) } else { a.or(&b) - a.and(&b) })
}

fn shift(c: &Call<'_>, is_left: bool) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let width = 8 * ty.bytes() as i64;
    let one = computed(c, &one(), ty)?;
    let mut factor = one;
    for bit in 0..6 {
        let taken = (&b / (1i64 << bit)).modulo(2i64).equal(1i64);
        // 2^32 does not fit 32 bits. Larger shifts are handled below.
        let power = 1i64 << (1u32 << bit).min(30);
        factor = taken.select(&(&factor * power), &factor);
        if bit == 4 && ty != ScalarType::I64 {
            break;
        }
        if bit == 4 {
            let high = (&b / 32i64).modulo(2i64).equal(1i64);
            factor = high.select(&(&factor * (1i64 << 32)), &factor);
            break;
        }
    }
    let beyond = b.ge(width).or(b.lt(0i64));
    let (zero, minus) = (c.cx.zero(&a), a.lt(0i64).select(&(c.cx.zero(&a) - 1i64), &c.cx.zero(&a)));
    let far = if is_left { zero } else { minus };
    c.result(&beyond.select(&far, &if is_left { a * factor } else { a / factor }))
}

fn floats2(c: &Call<'_>, f: fn(&Call<'_>, &Tensor, &Tensor) -> Tensor) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let [a, b] = [a, b].map(|x| if ty.is_float() { x } else { x.cast(DType::F32) });
    c.result(&f(c, &a, &b))
}

/// `log(exp(scale a) + exp(scale b)) / scale`
fn log_add(c: &Call<'_>, a: &Tensor, b: &Tensor, scale: f64) -> Tensor {
    let larger = a.maximum(b);
    let rest = -(a - b).abs() * scale;
    let sum = &larger + c.cx.log1p(&rest.exp()) * scale.recip();
    // The difference of equal infinities is NaN.
    a.equal(b).and(a.abs().equal(f64::INFINITY)).select(a, &sum)
}

fn x_log_y(c: &Call<'_>, x: &Tensor, y: &Tensor) -> Tensor {
    let product = x.equal(0.0).select(&c.cx.f(0.0), &(x * y.log()));
    c.cx.is_nan(y).select(y, &product)
}

fn heaviside(c: &Call<'_>) -> Lowered<Array> {
    let (x, values, ty) = named_pair(c, ["self", "values"])?;
    let [zero, one] = [0, 1].map(|value| computed(c, &Operand::Number(Number::Int(value.into())), ty));
    let (zero, one) = (zero?, one?);
    let y = x.gt(&zero).select(&one, &x.lt(&zero).select(&zero, &values));
    c.result(&if ty.is_float() { c.cx.is_nan(&x).select(&x, &y) } else { y })
}

fn lerp(c: &Call<'_>) -> Lowered<Array> {
    let (start, end, ty) = named_pair(c, ["self", "end"])?;
    let weight = computed(c, &operand(c, "weight")?, ty)?;
    let difference = &end - &start;
    let near = &start + &weight * &difference;
    let far = &end - &difference * (c.cx.f(1.0) - &weight);
    c.result(&weight.abs().lt(0.5).select(&near, &far))
}

fn addc(c: &Call<'_>, f: fn(&Tensor, &Tensor) -> Tensor) -> Lowered<Array> {
    let operands = [operand(c, "self")?, operand(c, "tensor1")?, operand(c, "tensor2")?];
    let ty = common_type(c, &operands.each_ref());
    let [x, a, b] = operands.each_ref().map(|operand| computed(c, operand, ty));
    let product = f(&a?, &b?);
    let value = if c.has("value") { &product * &computed(c, &operand(c, "value")?, ty)? } else { product };
    c.result(&(x? + value))
}

fn where_(c: &Call<'_>) -> Lowered<Array> {
    let condition = c.cx.cast(&c.tensor("condition")?, ScalarType::Bool).tensor;
    let names = if c.arguments.contains_key("self") { ["self", "other"] } else { ["input", "other"] };
    let (a, b, _) = named_pair(c, names)?;
    c.result(&condition.select(&a, &b))
}

fn clamp(c: &Call<'_>) -> Lowered<Array> {
    let x = operand(c, "self")?;
    let limits = ["min", "max"].map(|name| if c.has(name) { operand(c, name).map(Some) } else { Ok(None) });
    let [low, high] = limits;
    let (low, high) = (low?, high?);
    let operands: Vec<&Operand> = std::iter::once(&x).chain(&low).chain(&high).collect();
    let ty = common_type(c, &operands);
    let mut y = computed(c, &x, ty)?;
    if let Some(low) = low {
        y = y.maximum(computed(c, &low, ty)?);
    }
    if let Some(high) = high {
        y = y.minimum(computed(c, &high, ty)?);
    }
    c.result(&y)
}

fn clamp_one(c: &Call<'_>, name: &str, op: BinaryOp) -> Lowered<Array> {
    let (x, limit, _) = named_pair(c, ["self", name])?;
    c.result(&x.binary(op, &limit))
}

fn masked_fill(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let mask = c.cx.cast(&c.tensor("mask")?, ScalarType::Bool).tensor;
    let value = computed(c, &operand(c, "value")?, x.ty)?;
    c.result(&mask.select(&value, &x.tensor))
}

fn isclose(c: &Call<'_>) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    let (rtol, atol) = (c.float_or("rtol", 1e-5)?, c.float_or("atol", 1e-8)?);
    let [a, b] = [a, b].map(|x| if ty.is_float() { x } else { x.cast(DType::F32) });
    let near = (&a - &b).abs().le(&(b.abs() * rtol + atol)).and(b.abs().lt(f64::INFINITY));
    let mut y = near.or(a.equal(&b));
    if c.bool_or("equal_nan", false)? {
        y = y.or(c.cx.is_nan(&a).and(c.cx.is_nan(&b)));
    }
    c.result(&y)
}

/// Euclid's algorithm, unrolled for the maximum number of steps of integers of this many bits.
fn common_divisor(c: &Call<'_>, result: fn(&Call<'_>, [&Tensor; 2], &Tensor) -> Lowered<Array>) -> Lowered<Array> {
    let (a, b, ty) = pair(c)?;
    if !ty.is_integer() || ty == ScalarType::U64 {
        return Fault::unsupported(format!("divisors of {ty}"));
    }
    let [one, zero] = [1i64, 0].map(|value| c.cx.scope.scalar(a.dtype(), value));
    let (mut x, mut y) = (a.abs(), b.abs());
    // Fibonacci numbers need the most steps: one step per 0.69 bits.
    for _ in 0..ty.bits() * 3 / 2 {
        let is_done = y.equal(0i64);
        let rest = x.modulo(&is_done.select(&one, &y));
        (x, y) = (is_done.select(&x, &y), is_done.select(&zero, &rest));
    }
    result(c, [&a, &b], &x)
}
