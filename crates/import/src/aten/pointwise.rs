//! Elementwise functions of one tensor.

use super::{Many, One};
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::value::{Fault, Lowered, Value};
use rewire_graph::{DType, Tensor};
use std::f64::consts::{LN_2, LN_10, PI};

pub(super) const ONE: One = &[
    ("aten.abs", |c| unary_same(c, |_, x| x.abs())),
    ("aten.neg", |c| unary_same(c, |_, x| -x)),
    ("aten.positive", |c| c.x()),
    ("aten.square", |c| unary_same(c, |_, x| x.square())),
    ("aten.sign", |c| unary_same(c, |c, x| c.cx.sign(x))),
    ("aten.sgn", |c| unary_same(c, |c, x| c.cx.sign(x))),
    ("aten.floor", |c| rounding(c, Tensor::floor)),
    ("aten.ceil", |c| rounding(c, Tensor::ceil)),
    ("aten.trunc", |c| rounding(c, Tensor::trunc)),
    ("aten.fix", |c| rounding(c, Tensor::trunc)),
    ("aten.round", |c| rounding(c, Tensor::round)),
    ("aten.round.decimals", round_decimals),
    ("aten.frac", |c| unary(c, |_, x| x - x.trunc())),
    ("aten.exp", |c| unary(c, |_, x| x.exp())),
    ("aten.exp2", |c| unary(c, |_, x| (x * LN_2).exp())),
    ("aten.expm1", |c| unary(c, |c, x| c.cx.expm1(x))),
    ("aten.log", |c| unary(c, |_, x| x.log())),
    ("aten.log2", |c| unary(c, |_, x| x.log() * LN_2.recip())),
    ("aten.log10", |c| unary(c, |_, x| x.log() * LN_10.recip())),
    ("aten.log1p", |c| unary(c, |c, x| c.cx.log1p(x))),
    ("aten.sqrt", |c| unary(c, |_, x| x.sqrt())),
    ("aten.rsqrt", |c| unary(c, |_, x| x.rsqrt())),
    ("aten.reciprocal", |c| unary(c, |c, x| c.cx.f(1.0) / x)),
    ("aten.sin", |c| unary(c, |_, x| x.sin())),
    ("aten.cos", |c| unary(c, |_, x| x.cos())),
    ("aten.tan", |c| unary(c, |_, x| x.sin() / x.cos())),
    ("aten.asin", |c| unary(c, |c, x| c.cx.asin(x))),
    ("aten.acos", |c| unary(c, |c, x| c.cx.acos(x))),
    ("aten.atan", |c| unary(c, |c, x| c.cx.atan(x))),
    ("aten.sinh", |c| unary(c, |c, x| c.cx.sinh(x))),
    ("aten.cosh", |c| unary(c, |c, x| c.cx.cosh(x))),
    ("aten.tanh", |c| unary(c, |_, x| x.tanh())),
    ("aten.asinh", |c| unary(c, |c, x| c.cx.asinh(x))),
    ("aten.acosh", |c| unary(c, |c, x| c.cx.acosh(x))),
    ("aten.atanh", |c| unary(c, |c, x| c.cx.atanh(x))),
    ("aten.arctan", |c| unary(c, |c, x| c.cx.atan(x))),
    ("aten.erf", |c| unary(c, |_, x| x.erf())),
    ("aten.erfc", |c| unary(c, |c, x| c.cx.f(1.0) - x.erf())),
    ("aten.erfinv", |c| unary(c, |c, x| c.cx.erfinv(x))),
    ("aten.lgamma", |c| unary(c, |c, x| c.cx.lgamma(x))),
    ("aten.special_gammaln", |c| unary(c, |c, x| c.cx.lgamma(x))),
    ("aten.digamma", |c| unary(c, |c, x| c.cx.digamma(x))),
    ("aten.special_digamma", |c| unary(c, |c, x| c.cx.digamma(x))),
    ("aten.special_erf", |c| unary(c, |_, x| x.erf())),
    ("aten.special_erfc", |c| unary(c, |c, x| c.cx.f(1.0) - x.erf())),
    ("aten.special_exp2", |c| unary(c, |_, x| (x * LN_2).exp())),
    ("aten.special_entr", |c| {
        unary(c, |c, x| {
            let inside = x.gt(0.0).select(&-(x * x.log()), &c.cx.f(0.0));
            x.lt(0.0).select(&c.cx.f(f64::NEG_INFINITY), &inside)
        })
    }),
    ("aten.special_sinc", |c| unary(c, sinc)),
    ("aten.special_expit", |c| unary(c, |_, x| x.sigmoid())),
    ("aten.special_log1p", |c| unary(c, |c, x| c.cx.log1p(x))),
    ("aten.special_expm1", |c| unary(c, |c, x| c.cx.expm1(x))),
    ("aten.special_ndtr", |c| unary(c, |_, x| (x * 0.5f64.sqrt()).erf() * 0.5 + 0.5)),
    ("aten.sinc", |c| unary(c, sinc)),
    ("aten.deg2rad", |c| unary(c, |_, x| x * (PI / 180.0))),
    ("aten.rad2deg", |c| unary(c, |_, x| x * (180.0 / PI))),
    ("aten.nan_to_num", nan_to_num),
    ("aten.isnan", |c| test(c, |c, x| c.cx.is_nan(x), false)),
    ("aten.isinf", |c| test(c, |_, x| x.abs().equal(f64::INFINITY), false)),
    ("aten.isposinf", |c| test(c, |_, x| x.equal(f64::INFINITY), false)),
    ("aten.isneginf", |c| test(c, |_, x| x.equal(f64::NEG_INFINITY), false)),
    ("aten.isfinite", |c| test(c, |_, x| x.abs().lt(f64::INFINITY), true)),
    ("aten.signbit", |c| {
        let x = c.x()?;
        c.result(&match x.ty.is_float() {
            true => c.cx.with_sign(&c.cx.f(1.0), &x.tensor).lt(0.0),
            false => x.tensor.cast(DType::I64).lt(0i64),
        })
    }),
    ("aten.logical_not", |c| c.result(&c.cx.cast(&c.x()?, ScalarType::Bool).tensor.not())),
    ("aten.bitwise_not", bitwise_not),
    ("aten.to", convert),
    ("aten._to_copy", convert),
    ("aten.type_as", convert),
    ("aten.float", convert),
    ("aten.double", convert),
    ("aten.half", convert),
    ("aten.long", convert),
    ("aten.int", convert),
    ("aten.bool", convert),
    ("prims.convert_element_type", convert),
    ("aten.clone", |c| c.x()),
    ("aten.contiguous", |c| c.x()),
    ("aten.alias", |c| c.x()),
    ("aten.alias_copy", |c| c.x()),
    ("aten.detach", |c| c.x()),
    ("aten.detach_copy", |c| c.x()),
    ("aten.lift_fresh_copy", |c| c.x()),
    ("aten.lift_fresh", |c| c.x()),
    ("aten.lift", |c| c.x()),
    ("aten.cpu", |c| c.x()),
    ("aten.resolve_conj", |c| c.x()),
    ("aten.resolve_neg", |c| c.x()),
    ("aten.conj", |c| c.x()),
    ("aten.real", |c| c.x()),
    ("aten.copy", copy),
    ("aten.dropout", dropout),
    ("aten.feature_dropout", dropout),
    ("aten.alpha_dropout", dropout),
    ("aten.feature_alpha_dropout", dropout),
    ("aten.bernoulli", |_| Fault::unsupported("random numbers")),
];

pub(super) const MANY: Many = &[
    ("aten.promote_types", |_| Ok(vec![Value::None])),
    ("aten.native_dropout", |c| {
        if c.bool_or("train", true)? {
            return Fault::unsupported("training");
        }
        let x = c.x()?;
        let mask = c.cx.expand(&c.cx.scope.scalar(DType::Bool, 1i64), &c.cx.shape(&x.tensor))?;
        Ok(vec![x.into(), c.nth(1, &mask)?])
    }),
];

/// A float function. Integers are converted to floats.
fn unary(c: &Call<'_>, f: fn(&Call<'_>, &Tensor) -> Tensor) -> Lowered<Array> {
    let x = c.cx.cast(&c.x()?, ScalarType::F32.promote(c.ty(0)?));
    c.result(&f(c, &x.tensor))
}

/// A function that is defined for floats and integers.
fn unary_same(c: &Call<'_>, f: fn(&Call<'_>, &Tensor) -> Tensor) -> Lowered<Array> {
    let x = c.x()?;
    if x.ty == ScalarType::Bool {
        return Fault::unsupported("bools");
    }
    c.result(&f(c, &x.tensor))
}

fn rounding(c: &Call<'_>, f: fn(&Tensor) -> Tensor) -> Lowered<Array> {
    let x = c.x()?;
    if x.ty.is_float() { c.result(&f(&x.tensor)) } else { Ok(x) }
}

fn round_decimals(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    let decimals = i32::try_from(c.int_or("decimals", 0)?).unwrap_or(0);
    let scale = 10f64.powi(decimals.abs());
    let (up, down) = if decimals >= 0 { (scale, scale.recip()) } else { (scale.recip(), scale) };
    let scaled = if decimals >= 0 { &x.tensor * up } else { &x.tensor / scale };
    let whole = scaled.round();
    c.result(&if decimals > 0 { whole / scale } else { whole * down })
}

fn sinc(c: &Call<'_>, x: &Tensor) -> Tensor {
    let angle = x * PI;
    x.equal(0.0).select(&c.cx.f(1.0), &(angle.sin() / &angle))
}

fn nan_to_num(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    if !x.ty.is_float() {
        return Ok(x);
    }
    let most = match x.ty {
        ScalarType::F16 => 65504.0,
        ScalarType::BF16 => 3.3895313892515355e38,
        ScalarType::F64 => return Fault::unsupported("the limits of f64"),
        _ => f64::from(f32::MAX),
    };
    let values = [c.float_or("nan", 0.0)?, c.float_or("posinf", most)?, c.float_or("neginf", -most)?];
    let [nan, above, below] = values.map(|value| c.cx.f(value));
    let x = x.tensor;
    let y = x.equal(f64::INFINITY).select(&above, &x.equal(f64::NEG_INFINITY).select(&below, &x));
    c.result(&c.cx.is_nan(&x).select(&nan, &y))
}

/// A test that is only interesting for floats. All integers have the result `integers`.
fn test(c: &Call<'_>, f: fn(&Call<'_>, &Tensor) -> Tensor, integers: bool) -> Lowered<Array> {
    let x = c.x()?;
    if x.ty.is_float() {
        return c.result(&f(c, &x.tensor));
    }
    let value = c.cx.scope.scalar(DType::Bool, i64::from(integers));
    c.result(&c.cx.expand(&value, &c.cx.shape(&x.tensor))?)
}

fn bitwise_not(c: &Call<'_>) -> Lowered<Array> {
    let x = c.x()?;
    c.result(&if x.ty == ScalarType::Bool { x.tensor.not() } else { -x.tensor - 1i64 })
}

fn convert(c: &Call<'_>) -> Lowered<Array> {
    Ok(c.cx.cast(&c.x()?, c.ty(0)?))
}

fn copy(c: &Call<'_>) -> Lowered<Array> {
    let (x, source) = (c.x()?, c.tensor("src")?);
    let source = c.cx.cast(&source, x.ty);
    let tensor = c.cx.expand(&source.tensor, &c.cx.shape(&x.tensor))?;
    Ok(Array { tensor, ty: x.ty })
}

fn dropout(c: &Call<'_>) -> Lowered<Array> {
    if c.bool_or("train", false)? && c.float_or("p", 0.5)? != 0.0 {
        return Fault::unsupported("training");
    }
    c.x()
}
