use super::op::{Pow, Rsqrt, Sqrt};
use super::{Algebra, Arithmetic, Binary, BinaryOp, Declaration, FUNCTION, Unary, UnaryOp, Vectors, Wgsl};
use crate::Scalar::F32;

impl Unary for Sqrt {
    const DECLARATION: Declaration =
        Declaration { name: "sqrt", wgsl: &[(&[F32], Wgsl::both("sqrt({a})"))], ..Declaration::FUNCTION };
    const EVALUATE: fn(f64) -> f64 = f64::sqrt;

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        v.sqrt(x)
    }

    fn gradient<A: Algebra>(at: &mut A, _: &A::Value, y: &A::Value, g: &A::Value) -> Option<A::Value> {
        let half = at.number(0.5);
        let half = at.mul(g, &half);
        Some(at.div(&half, y))
    }
}

impl Unary for Rsqrt {
    const DECLARATION: Declaration =
        Declaration { name: "rsqrt", wgsl: &[(&[F32], Wgsl::both("inverseSqrt({a})"))], ..Declaration::FUNCTION };
    const EVALUATE: fn(f64) -> f64 = |x| x.sqrt().recip();

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        v.div(v.splat(1.0), v.sqrt(x))
    }

    fn gradient<A: Algebra>(at: &mut A, _: &A::Value, y: &A::Value, g: &A::Value) -> Option<A::Value> {
        let half = at.number(-0.5);
        let (half, square) = (at.mul(g, &half), at.mul(y, y));
        let cube = at.mul(&square, y);
        Some(at.mul(&half, &cube))
    }
}

impl Binary for Pow {
    const DECLARATION: Declaration = Declaration {
        name: "pow",
        wgsl: &[(&[F32], Wgsl::scalar("power({a}, {b})"))],
        library: "
// As C's pow: a negative base has whole exponents alone, unless it is infinite.
fn power(x: f32, y: f32) -> f32 {
    // By the bits: Mesa 26 takes the absolute value of a constant -inf for -inf.
    let base = float_of_bits(bitcast<u32>(x) & 0x7fffffffu);
    let is_infinite = (bitcast<u32>(y) & 0x7fffffffu) == 0x7f800000u;
    if (y == 0.0f || x == 1.0f || (base == 1.0f && is_infinite)) {
        return 1.0f;
    }
    if (is_nan(x) || is_nan(y)) {
        return float_of_bits(0x7fc00000u);
    }
    // What there is built in need not be 0 for 0.
    let of_zero = select(0.0f, float_of_bits(0x7f800000u), y < 0.0f);
    let magnitude = select(pow(base, y), of_zero, base == 0.0f);
    if ((bitcast<u32>(x) >> 31u) == 0u) {
        return magnitude;
    }
    let is_odd = !is_infinite && y - 2.0f * floor(0.5f * y) == 1.0f;
    let is_defined = is_infinite || floor(y) == y || base == 0.0f || bitcast<u32>(base) == 0x7f800000u;
    return select(float_of_bits(0x7fc00000u), select(magnitude, -magnitude, is_odd), is_defined);
}",
        cost: 2 * FUNCTION,
        ..Declaration::OPERATION
    };
}

impl Arithmetic for Pow {
    const EVALUATE: fn(f64, f64) -> f64 = f64::powf;

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        v.each_pair(a, b, f32::powf)
    }

    fn gradient<A: Algebra>(at: &mut A, [a, b]: [&A::Value; 2], y: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        let (zero, one) = (at.number(0.0), at.number(1.0));
        let less = at.sub(b, &one);
        let power = at.binary(BinaryOp::Pow, a, &less);
        let slope = at.mul(b, &power);
        let is_constant = at.binary(BinaryOp::Eq, b, &zero);
        let slope = at.select(&is_constant, &zero, &slope);
        let logarithm = at.unary(UnaryOp::Log, a);
        let growth = at.mul(y, &logarithm);
        // A power of 0 stays 0 for every exponent that is not negative.
        let (is_zero, is_natural) = (at.binary(BinaryOp::Eq, a, &zero), at.binary(BinaryOp::Ge, b, &zero));
        let stays = at.binary(BinaryOp::And, &is_zero, &is_natural);
        let growth = at.select(&stays, &zero, &growth);
        [Some(at.mul(g, &slope)), Some(at.mul(g, &growth))]
    }
}
