//! Elementary functions of vectors of floats, without branches.

use pulp::Simd;
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LOG2_E};

const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding it rounds to an integer, which is then in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// The lowest bit of a float's exponent.
const EXPONENT: u32 = 23;
const SIGN: u32 = 1 << 31;

/// `erfc(x) e^(x^2)` for `x` in `0.9..4.2` as a polynomial of `(1 / (1 + x / 2) - ERFC_CENTRE) * ERFC_SCALE`.
const ERFC: [f32; 7] =
    [0.260_658_97, 0.158_992_96, 0.032_952_994, 0.003_914_13, 5.995_91e-5, -4.552_465e-5, -1.849_316e-6];
const ERFC_CENTRE: f32 = 0.506_117_9;
const ERFC_SCALE: f32 = 1.0 / 0.183_537_26;
/// `(erf(x) / (2 x / sqrt(pi)) - 1) / x^2` as a polynomial of `x^2`.
const ERF: [f32; 8] =
    [-1.0 / 3.0, 0.1, -1.0 / 42.0, 1.0 / 216.0, -1.0 / 1320.0, 1.0 / 9360.0, -1.0 / 75_600.0, 1.0 / 685_440.0];
/// `(e^x - 1 - x) / x^2` as a polynomial of `x`.
const EXPM1: [f32; 6] = [0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];

/// Keeps NaN.
#[inline(always)]
fn clamp<S: Simd>(simd: S, x: S::f32s, low: f32, high: f32) -> S::f32s {
    let (low, high) = (simd.splat_f32s(low), simd.splat_f32s(high));
    let x = simd.select_f32s(simd.less_than_f32s(x, low), low, x);
    simd.select_f32s(simd.less_than_f32s(high, x), high, x)
}

/// The larger, or NaN if either is.
#[inline(always)]
pub(super) fn larger<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
    let largest = simd.select_f32s(simd.less_than_or_equal_f32s(b, a), a, b);
    simd.select_f32s(simd.equal_f32s(a, a), largest, a)
}

/// The smaller, or NaN if either is.
#[inline(always)]
pub(super) fn smaller<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
    let smallest = simd.select_f32s(simd.less_than_or_equal_f32s(a, b), a, b);
    simd.select_f32s(simd.equal_f32s(a, a), smallest, a)
}

/// A polynomial with these coefficients, the constant one first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::f32s, coefficients: [f32; N]) -> S::f32s {
    let mut sum = simd.splat_f32s(coefficients[N - 1]);
    for n in (0..N - 1).rev() {
        sum = simd.mul_add_e_f32s(sum, x, simd.splat_f32s(coefficients[n]));
    }
    sum
}

/// `x = n ln 2 + r`: `(n, r)`, with `n` in the low bits of an integer, whose next nine bits are zero.
#[inline(always)]
fn reduce<S: Simd>(simd: S, x: S::f32s) -> (S::u32s, S::f32s) {
    let rounder = simd.splat_f32s(ROUNDER);
    let shifted = simd.mul_add_e_f32s(x, simd.splat_f32s(LOG2_E), rounder);
    let n = simd.sub_f32s(shifted, rounder);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN2_HIGH), x);
    (simd.transmute_u32s_f32s(shifted), simd.mul_add_e_f32s(n, simd.splat_f32s(-LN2_LOW), r))
}

/// `e^r - 1` for `|r| < 0.35`.
#[inline(always)]
fn expm1_reduced<S: Simd>(simd: S, r: S::f32s) -> S::f32s {
    simd.mul_add_e_f32s(simd.mul_f32s(r, r), polynomial(simd, r, EXPM1), r)
}

/// `2^(n + offset)` for the low bits `n`, if that is from -126 to 127.
#[inline(always)]
fn power_of_two<S: Simd>(simd: S, n: S::u32s, offset: i32) -> S::f32s {
    let biased = simd.add_u32s(n, simd.splat_u32s((127 + offset) as u32));
    simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(biased, simd.splat_u32s(EXPONENT)))
}

/// `e^x`; 0 and infinity beyond the range of floats.
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (n, r) = reduce(simd, clamp(simd, x, -104.0, 89.0));
    // Half of `n`, plus 128.
    let half = simd.wrapping_dyn_shr_u32s(simd.add_u32s(n, simd.splat_u32s(256)), simd.splat_u32s(1));
    let y = simd.add_f32s(expm1_reduced(simd, r), simd.splat_f32s(1.0));
    let y = simd.mul_f32s(y, power_of_two(simd, half, -128));
    simd.mul_f32s(y, power_of_two(simd, simd.sub_u32s(n, half), 128))
}

/// `1 / (1 + e^-x)`
#[inline(always)]
pub(super) fn sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    simd.div_f32s(one, simd.add_f32s(one, exp(simd, simd.neg_f32s(x))))
}

/// `x / (1 + e^-x)`
#[inline(always)]
pub(super) fn silu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (one, limit) = (simd.splat_f32s(1.0), simd.splat_f32s(-88.0));
    let (n, r) = reduce(simd, clamp(simd, simd.neg_f32s(x), -87.0, 88.0));
    let scale = power_of_two(simd, n, 0);
    let e = simd.mul_add_e_f32s(expm1_reduced(simd, r), scale, scale);
    let y = simd.div_f32s(x, simd.add_f32s(one, e));
    simd.select_f32s(simd.less_than_f32s(x, limit), simd.mul_f32s(simd.splat_f32s(0.0), y), y)
}

/// `y`, not negative, with the sign of `x`.
#[inline(always)]
fn signed<S: Simd>(simd: S, y: S::f32s, x: S::f32s) -> S::f32s {
    let sign = simd.and_u32s(simd.transmute_u32s_f32s(x), simd.splat_u32s(SIGN));
    simd.transmute_f32s_u32s(simd.or_u32s(simd.transmute_u32s_f32s(y), sign))
}

/// Hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (one, two) = (simd.splat_f32s(1.0), simd.splat_f32s(2.0));
    let (n, r) = reduce(simd, clamp(simd, simd.mul_f32s(two, simd.abs_f32s(x)), 0.0, 20.0));
    let scale = power_of_two(simd, n, 0);
    let e = simd.mul_add_e_f32s(scale, expm1_reduced(simd, r), simd.sub_f32s(scale, one));
    signed(simd, simd.div_f32s(e, simd.add_f32s(e, two)), x)
}

/// Natural logarithm.
#[inline(always)]
pub(super) fn log<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (zero, infinity) = (simd.splat_f32s(0.0), simd.splat_f32s(f32::INFINITY));
    let tiny = simd.less_than_f32s(x, simd.splat_f32s(f32::MIN_POSITIVE));
    let normal = simd.select_f32s(tiny, simd.mul_f32s(x, simd.splat_f32s(8_388_608.0)), x);
    let bits = simd.transmute_u32s_f32s(normal);
    // The exponent plus 256, so that it is not negative.
    let offset = simd.sub_u32s(bits, simd.splat_u32s(FRAC_1_SQRT_2.to_bits().wrapping_sub(SIGN)));
    let exponent = simd.wrapping_dyn_shr_u32s(offset, simd.splat_u32s(EXPONENT));
    let shifted = simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(EXPONENT));
    let m = simd.transmute_f32s_u32s(simd.add_u32s(simd.sub_u32s(bits, shifted), simd.splat_u32s(SIGN)));
    let n = simd.transmute_f32s_u32s(simd.add_u32s(exponent, simd.splat_u32s(ROUNDER.to_bits() - 256)));
    let n = simd.sub_f32s(n, simd.splat_f32s(ROUNDER));
    let n = simd.select_f32s(tiny, simd.sub_f32s(n, simd.splat_f32s(23.0)), n);
    let f = simd.sub_f32s(m, simd.splat_f32s(1.0));
    let s = simd.div_f32s(f, simd.add_f32s(simd.splat_f32s(2.0), f));
    let z = simd.mul_f32s(s, s);
    let p = simd.mul_f32s(z, polynomial(simd, z, [2.0 / 3.0, 0.4, 2.0 / 7.0, 2.0 / 9.0]));
    let rest = simd.mul_add_e_f32s(n, simd.splat_f32s(-LN2_LOW), simd.mul_f32s(s, simd.sub_f32s(f, p)));
    let y = simd.mul_add_e_f32s(n, simd.splat_f32s(LN2_HIGH), simd.sub_f32s(f, rest));
    let y = simd.select_f32s(simd.equal_f32s(x, infinity), x, y);
    let y = simd.select_f32s(simd.equal_f32s(x, zero), simd.splat_f32s(f32::NEG_INFINITY), y);
    simd.select_f32s(simd.less_than_or_equal_f32s(zero, x), y, simd.splat_f32s(f32::NAN))
}

/// Error function: its Maclaurin series below 0.95, a fit of `erfc(x) e^(x^2)` above.
#[inline(always)]
pub(super) fn erf<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    let a = clamp(simd, simd.abs_f32s(x), 0.0, 4.2);
    let z = simd.mul_f32s(a, a);
    let small = simd.mul_add_e_f32s(a, simd.mul_f32s(z, polynomial(simd, z, ERF)), a);
    let small = simd.mul_f32s(small, simd.splat_f32s(FRAC_2_SQRT_PI));
    let u = simd.div_f32s(one, simd.mul_add_e_f32s(simd.splat_f32s(0.5), a, one));
    let u = simd.mul_f32s(simd.sub_f32s(u, simd.splat_f32s(ERFC_CENTRE)), simd.splat_f32s(ERFC_SCALE));
    let g = polynomial(simd, u, ERFC);
    let large = simd.sub_f32s(one, simd.mul_f32s(exp(simd, simd.neg_f32s(z)), g));
    let y = simd.select_f32s(simd.less_than_f32s(a, simd.splat_f32s(0.95)), small, large);
    signed(simd, y, x)
}
