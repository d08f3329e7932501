//! Bessel functions, tails of the normal distribution, and adjacent floats.

use super::One;
use crate::ScalarType;
use crate::array::Array;
use crate::call::Call;
use crate::context::Context;
use crate::float::polynomial;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use rewire_graph::op::Bits;
use rewire_graph::{DType, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

pub(super) const ONE: One = &[
    ("aten.special_i0", |c| float(c, |cx, x| bessel_i0(cx, x) * x.abs().exp())),
    ("aten.special_modified_bessel_i0", |c| float(c, |cx, x| bessel_i0(cx, x) * x.abs().exp())),
    ("aten.i0", |c| float(c, |cx, x| bessel_i0(cx, x) * x.abs().exp())),
    ("aten.special_i0e", |c| float(c, bessel_i0)),
    ("aten.special_i1", |c| float(c, |cx, x| bessel_i1(cx, x) * x.abs().exp())),
    ("aten.special_modified_bessel_i1", |c| float(c, |cx, x| bessel_i1(cx, x) * x.abs().exp())),
    ("aten.special_i1e", |c| float(c, bessel_i1)),
    ("aten.special_log_ndtr", |c| float(c, log_normal)),
    ("aten.special_ndtri", |c| float(c, normal_quantile)),
    ("aten.special_erfcx", |c| float(c, scaled_complement)),
    ("aten.mvlgamma", multivariate_log_gamma),
    ("aten.special_multigammaln", multivariate_log_gamma),
    ("aten.nextafter", next_after),
];

fn float(c: &Call<'_>, f: fn(&Context, &Tensor) -> Tensor) -> Lowered<Array> {
    let x = c.cx.cast(&c.x()?, ScalarType::F32);
    c.result(&f(c.cx, &x.tensor))
}

/// Argument that separates the two series of Abramowitz and Stegun, 9.8.
const LIMIT: f64 = 3.75;

/// Evaluates the series for small or large arguments, scaled by `e^-|x|`.
fn bessel(cx: &Context, x: &Tensor, [near, far]: [&[f64]; 2]) -> Tensor {
    let a = x.abs();
    let square = (&a * LIMIT.recip()).square();
    let inner = polynomial(&square, near) * (-&a).exp();
    let large = a.maximum(LIMIT);
    let outer = polynomial(&(cx.f(LIMIT) / &large), far) * large.rsqrt();
    a.lt(LIMIT).select(&inner, &outer)
}

/// The modified Bessel function of order 0, scaled by `e^-|x|`.
fn bessel_i0(cx: &Context, x: &Tensor) -> Tensor {
    let near = [0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0];
    let far =
        [0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228];
    bessel(cx, x, [&near, &far])
}

/// The modified Bessel function of order 1, scaled by `e^-|x|`.
fn bessel_i1(cx: &Context, x: &Tensor) -> Tensor {
    let near = [0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5];
    let far = [
        -0.00420059,
        0.01787654,
        -0.02895312,
        0.02282967,
        -0.01031555,
        0.00163801,
        -0.00362018,
        -0.03988024,
        0.39894228,
    ];
    // The series for small arguments yields the function divided by its argument.
    let a = x.abs();
    let y = bessel(cx, x, [&near, &far]);
    cx.with_sign(&a.lt(LIMIT).select(&(&y * &a), &y), x)
}

/// `log(e^(z^2) erfc(z))` for `z >= 0` (Numerical Recipes, 6.2).
fn log_scaled_complement(cx: &Context, z: &Tensor) -> Tensor {
    let coefficients = [
        0.17087277,
        -0.82215223,
        1.48851587,
        -1.13520398,
        0.27886807,
        -0.18628806,
        0.09678418,
        0.37409196,
        1.00002368,
        -1.26551223,
    ];
    let t = cx.f(1.0) / (z * 0.5 + 1.0);
    t.log() + polynomial(&t, &coefficients)
}

/// `e^(x^2) erfc(x)`
fn scaled_complement(cx: &Context, x: &Tensor) -> Tensor {
    let above = log_scaled_complement(cx, &x.maximum(0.0)).exp();
    let low = x.minimum(0.0);
    let below = low.square().exp() * (cx.f(1.0) - low.erf());
    x.lt(0.0).select(&below, &above)
}

/// The logarithm of the normal distribution function.
fn log_normal(cx: &Context, x: &Tensor) -> Tensor {
    let z = x.minimum(0.0) * -FRAC_1_SQRT_2;
    let below = log_scaled_complement(cx, &z) - z.square() + 0.5f64.ln();
    let tail = (x.maximum(0.0) * FRAC_1_SQRT_2).erf();
    let above = cx.log1p(&((tail - 1.0) * 0.5));
    x.lt(0.0).select(&below, &above)
}

/// The inverse of the normal distribution function. In the tails, by Newton's method on its logarithm.
fn normal_quantile(cx: &Context, p: &Tensor) -> Tensor {
    let middle = cx.erfinv(&(p * 2.0 - 1.0)) * SQRT_2;
    let is_low = p.lt(0.5);
    let tail = is_low.select(p, &(cx.f(1.0) - p));
    let wanted = tail.maximum(f64::from(f32::MIN_POSITIVE)).log();
    // Abramowitz and Stegun, 26.2.23.
    let t = (&wanted * -2.0).sqrt();
    let ratio = polynomial(&t, &[0.010328, 0.802853, 2.515517]) / polynomial(&t, &[0.001308, 0.189269, 1.432788, 1.0]);
    let mut y = ratio - &t;
    for _ in 0..2 {
        let log = log_normal(cx, &y);
        let density = (y.square() * -0.5 - &log - (2.0 * PI).ln() * 0.5).exp();
        y = &y - (log - &wanted) / density;
    }
    let tails = is_low.select(&y, &-&y);
    let y = tail.lt(0.1).select(&tails, &middle);
    let [low, high] = [f64::NEG_INFINITY, f64::INFINITY].map(|value| cx.f(value));
    let y = p.equal(0.0).select(&low, &p.equal(1.0).select(&high, &y));
    p.ge(0.0).and(p.le(1.0)).select(&y, &cx.f(f64::NAN))
}

fn multivariate_log_gamma(c: &Call<'_>) -> Lowered<Array> {
    let (x, p) = (c.cx.cast(&c.x()?, ScalarType::F32).tensor, c.int("p")?);
    if !(1..=64).contains(&p) {
        return Fault::unsupported(format!("p={p}"));
    }
    let terms = (0..p).map(|n| c.cx.lgamma(&(&x - n as f64 * 0.5)));
    let constant = c.cx.f((p * (p - 1)) as f64 * 0.25 * PI.ln());
    c.result(&terms.fold(constant, |sum, term| sum + term))
}

/// The next float after `x` in the direction of another.
fn next_after(c: &Call<'_>) -> Lowered<Array> {
    let (x, other) = (c.x()?, c.tensor("other")?);
    if x.ty != ScalarType::F32 || other.ty != ScalarType::F32 {
        return Fault::unsupported("floats that are not of 32 bits");
    }
    let shape = c.cx.broadcast_shape(&[&x.tensor, &other.tensor])?;
    let [x, other] = [x, other].map(|x| c.cx.expand(&x.tensor, &shape));
    let (x, other) = (x?, other?);
    let bits = bits(c.cx, &x)?;
    let is_up = x.lt(&other);
    let away = is_up.equal(x.gt(0.0));
    let [up, down] = [1i64, -1].map(|step| &bits + step);
    // The bits of floats increase with magnitude. The neighbours of zero are the smallest floats of either sign.
    let [least, negative] = [1i64, i64::from(i32::MIN) + 1].map(|bits| c.cx.scope.scalar(DType::I32, bits));
    let next = away.select(&up, &down);
    let next = x.equal(0.0).select(&is_up.select(&least, &negative), &next);
    let y = self::bits(c.cx, &next)?;
    let y = x.equal(&other).select(&other, &y);
    c.result(&c.cx.is_nan(&x).or(c.cx.is_nan(&other)).select(&(&x + &other), &y))
}

/// Reinterprets the bits of floats as 32-bit integers, or the reverse.
pub(crate) fn bits(cx: &Context, x: &Tensor) -> Lowered<Tensor> {
    let shape = cx.shape(x);
    let flat = cx.reshape(x, &[Size::product(&shape)])?;
    cx.reshape(&cx.scope.apply(Bits, &[&flat]), &shape)
}
