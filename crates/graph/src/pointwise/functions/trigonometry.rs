use super::op::{Cos, Sin};
use super::{Algebra, Declaration, Unary, UnaryOp, Vectors, Wgsl};
use crate::Scalar::F32;
use std::f32::consts::FRAC_2_PI;

/// Largest angle for which Cody and Waite's reduction keeps all digits.
const LARGE: f32 = 4096.0;
/// Adding it rounds to an integer, which is then in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// The bits of pi / 2 in parts whose products with small integers are exact.
const QUARTER: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_79e-8];

/// The sine of `x + quarters * pi / 2`: a polynomial on the quarter around 0.
#[inline(always)]
fn sine_of_quarter<V: Vectors>(v: V, x: V::Floats, quarters: u32) -> V::Floats {
    let rounder = v.splat(ROUNDER);
    let shifted = v.add(v.mul(x, v.splat(FRAC_2_PI)), rounder);
    let whole = v.sub(shifted, rounder);
    let r = QUARTER.into_iter().fold(x, |r, part| v.mul_add(whole, v.splat(-part), r));
    let s = v.mul(r, r);
    let sine = v.polynomial(s, [-0.166_666_55, 0.008_332_161, -1.951_529_6e-4]);
    // The sum would lose the sign of zero.
    let sine = v.select(v.equal(r, v.splat(0.0)), r, v.mul_add(v.mul(r, s), sine, r));
    let cosine = v.polynomial(s, [0.041_666_646, -0.001_388_731_6, 2.443_315_7e-5]);
    let cosine = v.mul_add(v.mul(s, s), cosine, v.mul_add(s, v.splat(-0.5), v.splat(1.0)));
    let quarter = v.add_words(v.bits(shifted), v.splat_word(quarters));
    // The lowest bit as the sign of a float: negative if the quarter is odd.
    let is_odd = v.less(v.of_bits(v.or(v.shift_up(quarter, 31), v.splat_word(1.0_f32.to_bits()))), v.splat(0.0));
    let sign = v.shift_up(v.and(quarter, v.splat_word(2)), 30);
    let value = v.select(is_odd, cosine, sine);
    let value = v.of_bits(v.xor(v.bits(value), sign));
    let is_large = v.not(v.less_or_equal(v.abs(x), v.splat(LARGE)));
    if !v.any(is_large) {
        return value;
    }
    let exact = if quarters == 0 { v.each(x, f32::sin) } else { v.each(x, f32::cos) };
    v.select(is_large, exact, value)
}

impl Unary for Sin {
    const DECLARATION: Declaration = Declaration {
        name: "sin",
        wgsl: &[(&[F32], Wgsl::scalar("sine({a})"))],
        library: "
// The quarters of a turn in a large angle, of which multiples of four do not count, and the radians that are left: a
// product of 2 / pi with those bits of it that matter (Payne and Hanek).
fn reduced_angle(x: f32) -> vec2<f32> {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let mantissa = (bits << 8u) | 0x80000000u;
    let place = (bits >> 23u) - 126u;
    let shift = place & 31u;
    // Four of the digits from a word on. Drivers keep an array of them in memory.
    var window: vec4<u32>;
    switch (place >> 5u) {
        case 0u: { window = vec4<u32>(0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u); }
        case 1u: { window = vec4<u32>(0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u); }
        case 2u: { window = vec4<u32>(0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u); }
        case 3u: { window = vec4<u32>(0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u); }
        default: { window = vec4<u32>(0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau); }
    }
    if (shift > 0u) {
        window = (window << vec4<u32>(shift)) | (vec4<u32>(window.yzw, 0u) >> vec4<u32>(32u - shift));
    }
    let carry = u32_mul_wide(mantissa, window.z).y;
    var product = i64_add(u32_mul_wide(mantissa, window.y), vec2<u32>(carry, 0u));
    product.y += mantissa * window.x;
    // Two bits of quarters, then their fraction, rounded to nearest.
    let up = (product.y >> 29u) & 1u;
    let quarters = f32(((product.y >> 30u) + up) & 3u);
    let fraction = vec2<u32>(product.x, (product.y & 0x3fffffffu) - (up << 30u));
    let rest = i64_to_f32(fraction) * 3.4061216e-19f;
    return select(vec2<f32>(quarters, rest), vec2<f32>(-quarters, -rest), x < 0.0f);
}

// The sine of x + quarters * pi / 2: a polynomial on the quarter around 0, after Cody and Waite's reduction.
fn sine_of_quarter(x: f32, quarters: i32) -> f32 {
    var whole = round(x * 0.63661975f);
    var r = ((x - whole * 1.5703125f) - whole * 0.0004837513f) - whole * 0.000000075497900f;
    if (abs(x) > 4096.0f && abs(x) <= 3.40282346e38f) {
        let reduced = reduced_angle(x);
        whole = reduced.x;
        r = reduced.y;
    }
    let s = r * r;
    let sine = r + r * s * (-0.16666655f + s * (0.008332161f + s * -0.00019515296f));
    let cosine = 1.0f - 0.5f * s + s * s * (0.041666646f + s * (-0.0013887316f + s * 0.000024433157f));
    let quarter = (i32(whole) + quarters) & 3;
    let value = select(sine, cosine, (quarter & 1) == 1);
    return select(value, -value, quarter >= 2);
}

fn sine(x: f32) -> f32 {
    return sine_of_quarter(x, 0);
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = f64::sin;

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        sine_of_quarter(v, x, 0)
    }

    fn gradient<A: Algebra>(at: &mut A, x: &A::Value, _: &A::Value, g: &A::Value) -> Option<A::Value> {
        let slope = at.unary(UnaryOp::Cos, x);
        Some(at.mul(g, &slope))
    }
}

impl Unary for Cos {
    const DECLARATION: Declaration = Declaration {
        name: "cos",
        wgsl: &[(&[F32], Wgsl::scalar("cosine({a})"))],
        library: "
fn cosine(x: f32) -> f32 {
    return sine_of_quarter(x, 1);
}",
        ..Declaration::FUNCTION
    };
    const EVALUATE: fn(f64) -> f64 = f64::cos;

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        sine_of_quarter(v, x, 1)
    }

    fn gradient<A: Algebra>(at: &mut A, x: &A::Value, _: &A::Value, g: &A::Value) -> Option<A::Value> {
        let sine = at.unary(UnaryOp::Sin, x);
        let product = at.mul(g, &sine);
        Some(at.neg(&product))
    }
}
