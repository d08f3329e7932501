use super::op::{Exp, Log, Relu, Sigmoid, Silu, Softplus, Tanh};
use super::{Algebra, Declaration, Unary, UnaryOp, Vectors, Wgsl};
use crate::Scalar::F32;
use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E};

const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding it rounds to an integer, which is then in the low bits, plus [`BIAS`].
const ROUNDER: f32 = 12_582_912.0 + BIAS as f32;
/// The exponent of 1, as bits of a float have it.
const BIAS: u32 = 127;
/// The lowest bit of a float's exponent.
const EXPONENT: u32 = 23;
const SIGN: u32 = 1 << 31;
/// `(e^x - 1 - x) / x^2` as a polynomial of `x`: a minimax fit of `e^x` for `|x| < 0.35`.
const EXPM1: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_404, 0.008_368_899, 0.001_381_422_2];

/// `x = n ln 2 + r`: `(n, r)`, with `n` + [`BIAS`] in the low bits of an integer, whose next nine bits are zero.
#[inline(always)]
fn reduce<V: Vectors>(v: V, x: V::Floats) -> (V::Words, V::Floats) {
    let rounder = v.splat(ROUNDER);
    let shifted = v.mul_add(x, v.splat(LOG2_E), rounder);
    let n = v.sub(shifted, rounder);
    let r = v.mul_add(n, v.splat(-LN2_HIGH), x);
    (v.bits(shifted), v.mul_add(n, v.splat(-LN2_LOW), r))
}

/// `e^r - 1` for `|r| < 0.35`.
#[inline(always)]
fn expm1_reduced<V: Vectors>(v: V, r: V::Floats) -> V::Floats {
    v.mul_add(v.mul(r, r), v.polynomial(r, EXPM1), r)
}

/// `e^r` for `|r| < 0.35`.
#[inline(always)]
fn exp_reduced<V: Vectors>(v: V, r: V::Floats) -> V::Floats {
    let [a, b, c, d, e] = EXPM1;
    v.polynomial(r, [1.0, 1.0, a, b, c, d, e])
}

/// `2^n` for the low bits `n` + [`BIAS`], if `n` is from -126 to 127; infinity for 128.
#[inline(always)]
fn power_of_two<V: Vectors>(v: V, biased: V::Words) -> V::Floats {
    v.of_bits(v.shift_up(biased, EXPONENT))
}

/// `e^x` for `x` in `-87..88`, whose results are normal numbers.
#[inline(always)]
pub(super) fn exp_within<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
    let (n, r) = reduce(v, x);
    v.mul(exp_reduced(v, r), power_of_two(v, n))
}

/// `1 + e^-x`; infinity where `e^-x` is nearly beyond the range of floats.
#[inline(always)]
fn one_plus_exp_of_negative<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
    let (n, r) = reduce(v, v.neg(v.clamp(x, -89.0, 87.0)));
    v.mul_add(exp_reduced(v, r), power_of_two(v, n), v.splat(1.0))
}

impl Unary for Exp {
    const DECLARATION: Declaration = Declaration {
        name: "exp",
        wgsl: &[(&[F32], Wgsl::forms("exponential({a})", "exponential4({a})"))],
        library: "
// What there is built in need not keep NaN.
fn exponential(x: f32) -> f32 {
    return select(exp(x), x, is_nan(x));
}

fn exponential4(x: vec4<f32>) -> vec4<f32> {
    return select(exp(x), x, is_nan4(x));
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = f64::exp;

    /// 0 and infinity beyond the range of floats.
    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        let (n, r) = reduce(v, v.clamp(x, -104.0, 89.0));
        let bias = v.splat_word(BIAS);
        let half = v.shift_down(v.add_words(n, bias), 1);
        let y = v.mul(exp_reduced(v, r), power_of_two(v, half));
        v.mul(y, power_of_two(v, v.add_words(v.sub_words(n, half), bias)))
    }

    fn gradient<A: Algebra>(at: &mut A, _: &A::Value, y: &A::Value, g: &A::Value) -> Option<A::Value> {
        Some(at.mul(g, y))
    }
}

impl Unary for Log {
    const DECLARATION: Declaration = Declaration {
        name: "log",
        wgsl: &[(&[F32], Wgsl::scalar("logarithm({a})"))],
        library: "
// What there is built in is undefined for numbers that have no logarithm.
fn logarithm(x: f32) -> f32 {
    if (x < 0.0f || is_nan(x)) {
        return float_of_bits(0x7fc00000u);
    }
    let natural = select(log(x), float_of_bits(0xff800000u), x == 0.0f);
    return select(natural, x, bitcast<u32>(x) == 0x7f800000u);
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = f64::ln;

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        let (zero, infinity) = (v.splat(0.0), v.splat(f32::INFINITY));
        let tiny = v.less(x, v.splat(f32::MIN_POSITIVE));
        let normal = v.select(tiny, v.mul(x, v.splat(8_388_608.0)), x);
        let bits = v.bits(normal);
        // The exponent plus 256, so that it is not negative.
        let offset = v.sub_words(bits, v.splat_word(FRAC_1_SQRT_2.to_bits().wrapping_sub(SIGN)));
        let exponent = v.shift_down(offset, EXPONENT);
        let shifted = v.shift_up(exponent, EXPONENT);
        let m = v.of_bits(v.add_words(v.sub_words(bits, shifted), v.splat_word(SIGN)));
        let n = v.of_bits(v.add_words(exponent, v.splat_word(ROUNDER.to_bits() - 256)));
        let n = v.sub(n, v.splat(ROUNDER));
        let n = v.select(tiny, v.sub(n, v.splat(23.0)), n);
        let f = v.sub(m, v.splat(1.0));
        let s = v.div(f, v.add(v.splat(2.0), f));
        let z = v.mul(s, s);
        let p = v.mul(z, v.polynomial(z, [2.0 / 3.0, 0.4, 2.0 / 7.0, 2.0 / 9.0]));
        let rest = v.mul_add(n, v.splat(-LN2_LOW), v.mul(s, v.sub(f, p)));
        let y = v.mul_add(n, v.splat(LN2_HIGH), v.sub(f, rest));
        let y = v.select(v.equal(x, infinity), x, y);
        let y = v.select(v.equal(x, zero), v.splat(f32::NEG_INFINITY), y);
        v.select(v.less_or_equal(zero, x), y, v.splat(f32::NAN))
    }

    fn gradient<A: Algebra>(at: &mut A, x: &A::Value, _: &A::Value, g: &A::Value) -> Option<A::Value> {
        Some(at.div(g, x))
    }
}

impl Unary for Sigmoid {
    const DECLARATION: Declaration = Declaration {
        name: "sigmoid",
        wgsl: &[(&[F32], Wgsl::forms("sigmoid({a})", "sigmoid4({a})"))],
        library: "
// The exponential of a large number is infinite, and a quotient by infinity 0.
fn sigmoid(x: f32) -> f32 {
    return select(1.0f / (1.0f + exp(-x)), x, is_nan(x));
}

fn sigmoid4(x: vec4<f32>) -> vec4<f32> {
    return select(1.0f / (1.0f + exp(-x)), x, is_nan4(x));
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = |x| 1.0 / (1.0 + (-x).exp());

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        v.div(v.splat(1.0), one_plus_exp_of_negative(v, x))
    }

    fn gradient<A: Algebra>(at: &mut A, _: &A::Value, y: &A::Value, g: &A::Value) -> Option<A::Value> {
        let one = at.number(1.0);
        let rest = at.sub(&one, y);
        let slope = at.mul(y, &rest);
        Some(at.mul(g, &slope))
    }
}

impl Unary for Silu {
    const DECLARATION: Declaration = Declaration {
        name: "silu",
        wgsl: &[(&[F32], Wgsl::forms("silu({a})", "silu4({a})"))],
        library: "
fn silu(x: f32) -> f32 {
    return x / (1.0f + exp(-x));
}

fn silu4(x: vec4<f32>) -> vec4<f32> {
    return x / (1.0f + exp(-x));
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = |x| x / (1.0 + (-x).exp());

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        v.div(x, one_plus_exp_of_negative(v, x))
    }

    fn gradient<A: Algebra>(at: &mut A, x: &A::Value, y: &A::Value, g: &A::Value) -> Option<A::Value> {
        let (one, sigmoid) = (at.number(1.0), at.unary(UnaryOp::Sigmoid, x));
        let rest = at.sub(&one, &sigmoid);
        let product = at.mul(y, &rest);
        let slope = at.add(&sigmoid, &product);
        Some(at.mul(g, &slope))
    }
}

impl Unary for Softplus {
    const DECLARATION: Declaration = Declaration {
        name: "softplus",
        wgsl: &[(&[F32], Wgsl::forms("softplus({a})", "softplus4({a})"))],
        library: "
// The logarithm of 1 + e is twice the inverse hyperbolic tangent of e / (2 + e), and that a series.
fn softplus(x: f32) -> f32 {
    let e = exp(-abs(x));
    let s = e / (2.0f + e);
    let z = s * s;
    let head = 0.14285715f + z * (0.11111111f + z * (0.09090909f + z * 0.07692308f));
    let series = 1.0f + z * (0.33333334f + z * (0.2f + z * head));
    return select(max(x, 0.0f) + 2.0f * s * series, x, is_nan(x));
}

fn softplus4(x: vec4<f32>) -> vec4<f32> {
    let e = exp(-abs(x));
    let s = e / (2.0f + e);
    let z = s * s;
    let head = 0.14285715f + z * (0.11111111f + z * (0.09090909f + z * 0.07692308f));
    let series = 1.0f + z * (0.33333334f + z * (0.2f + z * head));
    return select(max(x, vec4<f32>(0.0f)) + 2.0f * s * series, x, is_nan4(x));
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = |x| x.max(0.0) + (-x.abs()).exp().ln_1p();

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        let e = Exp::lanes(v, v.neg(v.abs(x)));
        let s = v.div(e, v.add(v.splat(2.0), e));
        let series = [2.0, 2.0 / 3.0, 0.4, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0, 2.0 / 13.0];
        v.mul_add(s, v.polynomial(v.mul(s, s), series), Relu::lanes(v, x))
    }

    fn gradient<A: Algebra>(at: &mut A, x: &A::Value, _: &A::Value, g: &A::Value) -> Option<A::Value> {
        let slope = at.unary(UnaryOp::Sigmoid, x);
        Some(at.mul(g, &slope))
    }
}

impl Unary for Tanh {
    const DECLARATION: Declaration = Declaration {
        name: "tanh",
        wgsl: &[(&[F32], Wgsl::scalar("tanh_of({a})"))],
        library: "
// The series below 0.15, where the quotient would cancel.
fn tanh_of(x: f32) -> f32 {
    let a = abs(x);
    let s = x * x;
    let small = x * (1.0f + s * (-0.33333334f + s * (0.13333334f + s * -0.053968254f)));
    let e = exp(-2.0f * a);
    let large = (1.0f - e) / (1.0f + e);
    return select(select(large, -large, x < 0.0f), small, a < 0.15f);
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = f64::tanh;

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        let (one, two) = (v.splat(1.0), v.splat(2.0));
        let (n, r) = reduce(v, v.mul(two, v.at_most(v.abs(x), 10.0)));
        let scale = power_of_two(v, n);
        let e = v.mul_add(scale, expm1_reduced(v, r), v.sub(scale, one));
        v.signed(v.div(e, v.add(e, two)), x)
    }

    fn gradient<A: Algebra>(at: &mut A, _: &A::Value, y: &A::Value, g: &A::Value) -> Option<A::Value> {
        let (one, square) = (at.number(1.0), at.mul(y, y));
        let slope = at.sub(&one, &square);
        Some(at.mul(g, &slope))
    }
}
