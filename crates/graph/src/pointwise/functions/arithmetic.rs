use super::op::{Abs, Add, Div, Mod, Mul, Neg, Sub};
use super::{
    Algebra, Arithmetic, Binary, BinaryOp, Bounds, Declaration, FUNCTION, Integer, Interval, Unary, UnaryOp, Vectors,
    Wgsl,
};
use crate::Scalar::{self, F32, I32, I64};

impl Unary for Neg {
    const DECLARATION: Declaration = Declaration {
        name: "neg",
        wgsl: &[(&[F32, I32], Wgsl::both("-{a}")), (&[I64], Wgsl::scalar("i64_neg({a})"))],
        ..Declaration::OPERATION
    };
    const EVALUATE: fn(f64) -> f64 = |x| -x;

    #[inline(always)]
    fn integer<I: Integer>(x: I) -> I {
        I::ZERO.minus(x)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        v.neg(x)
    }

    fn interval<A: Algebra>(at: &mut A, _: Scalar, a: &Bounds<A>) -> Option<Bounds<A>> {
        Some(Interval::new(at.neg(&a.high), at.neg(&a.low)))
    }

    fn gradient<A: Algebra>(at: &mut A, _: &A::Value, _: &A::Value, g: &A::Value) -> Option<A::Value> {
        Some(at.neg(g))
    }
}

impl Unary for Abs {
    const DECLARATION: Declaration = Declaration {
        name: "abs",
        wgsl: &[
            (&[F32], Wgsl::both("abs({a})")),
            (&[I32], Wgsl::forms("i32_abs({a})", "i32_abs4({a})")),
            (&[I64], Wgsl::scalar("i64_abs({a})")),
        ],
        library: "
// NVIDIA's compiler assumes that `abs` of an integer is not negative, but that of the smallest is.
fn i32_abs(x: i32) -> i32 {
    let sign = bitcast<u32>(x >> 31u);
    return bitcast<i32>((bitcast<u32>(x) ^ sign) - sign);
}

fn i32_abs4(x: vec4<i32>) -> vec4<i32> {
    let sign = bitcast<vec4<u32>>(x >> vec4<u32>(31u));
    return bitcast<vec4<i32>>((bitcast<vec4<u32>>(x) ^ sign) - sign);
}",
        ..Declaration::OPERATION
    };
    const EVALUATE: fn(f64) -> f64 = f64::abs;

    #[inline(always)]
    fn integer<I: Integer>(x: I) -> I {
        if x < I::ZERO { I::ZERO.minus(x) } else { x }
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        v.abs(x)
    }

    fn interval<A: Algebra>(at: &mut A, scalar: Scalar, a: &Bounds<A>) -> Option<Bounds<A>> {
        let (zero, below) = (at.constant(scalar, 0.0), at.neg(&a.high));
        let outside = at.binary(BinaryOp::Max, &a.low, &below);
        let ends = [&a.low, &a.high].map(|end| at.unary(UnaryOp::Abs, end));
        Some(Interval::new(at.binary(BinaryOp::Max, &zero, &outside), at.binary(BinaryOp::Max, &ends[0], &ends[1])))
    }

    fn gradient<A: Algebra>(at: &mut A, x: &A::Value, _: &A::Value, g: &A::Value) -> Option<A::Value> {
        let (zero, less) = (at.number(0.0), at.neg(g));
        let (above, below) = (at.binary(BinaryOp::Gt, x, &zero), at.binary(BinaryOp::Lt, x, &zero));
        let otherwise = at.select(&below, &less, &zero);
        Some(at.select(&above, g, &otherwise))
    }
}

impl Binary for Add {
    const DECLARATION: Declaration = Declaration {
        name: "add",
        wgsl: &[(&[F32, I32], Wgsl::both("{a} + {b}")), (&[I64], Wgsl::scalar("i64_add({a}, {b})"))],
        commutes: true,
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, _: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        Some(Interval::new(at.add(&a.low, &b.low), at.add(&a.high, &b.high)))
    }
}

impl Arithmetic for Add {
    const EVALUATE: fn(f64, f64) -> f64 = |a, b| a + b;

    #[inline(always)]
    fn integer<I: Integer>(a: I, b: I) -> I {
        a.plus(b)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        v.add(a, b)
    }

    fn gradient<A: Algebra>(_: &mut A, _: [&A::Value; 2], _: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        [Some(g.clone()), Some(g.clone())]
    }
}

impl Binary for Sub {
    const DECLARATION: Declaration = Declaration {
        name: "sub",
        wgsl: &[(&[F32, I32], Wgsl::both("{a} - {b}")), (&[I64], Wgsl::scalar("i64_sub({a}, {b})"))],
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, _: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        Some(Interval::new(at.sub(&a.low, &b.high), at.sub(&a.high, &b.low)))
    }
}

impl Arithmetic for Sub {
    const EVALUATE: fn(f64, f64) -> f64 = |a, b| a - b;

    #[inline(always)]
    fn integer<I: Integer>(a: I, b: I) -> I {
        a.minus(b)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        v.sub(a, b)
    }

    fn gradient<A: Algebra>(at: &mut A, _: [&A::Value; 2], _: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        [Some(g.clone()), Some(at.neg(g))]
    }
}

impl Binary for Mul {
    const DECLARATION: Declaration = Declaration {
        name: "mul",
        wgsl: &[(&[F32, I32], Wgsl::both("{a} * {b}")), (&[I64], Wgsl::scalar("i64_mul({a}, {b})"))],
        commutes: true,
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, _: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        let corners =
            [(&a.low, &b.low), (&a.low, &b.high), (&a.high, &b.low), (&a.high, &b.high)].map(|(a, b)| at.mul(a, b));
        let [low, high] = [BinaryOp::Min, BinaryOp::Max].map(|op| {
            let [one, other] = [&corners[..2], &corners[2..]].map(|pair| at.binary(op, &pair[0], &pair[1]));
            at.binary(op, &one, &other)
        });
        Some(Interval::new(low, high))
    }
}

impl Arithmetic for Mul {
    const EVALUATE: fn(f64, f64) -> f64 = |a, b| a * b;

    #[inline(always)]
    fn integer<I: Integer>(a: I, b: I) -> I {
        a.times(b)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        v.mul(a, b)
    }

    fn gradient<A: Algebra>(at: &mut A, [a, b]: [&A::Value; 2], _: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        [Some(at.mul(g, b)), Some(at.mul(g, a))]
    }
}

impl Binary for Div {
    const DECLARATION: Declaration = Declaration {
        name: "div",
        wgsl: &[
            (&[F32], Wgsl::both("{a} / {b}")),
            (&[I32], Wgsl::scalar("floor_div({a}, {b})")),
            (&[I64], Wgsl::scalar("i64_floor_div({a}, {b})")),
        ],
        library: "
fn floor_div(a: i32, b: i32) -> i32 {
    if (b == 0) {
        return 0;
    }
    // A division whose result is too large is undefined where shaders run without checks.
    if (b == -1) {
        return -a;
    }
    let quotient = a / b;
    return select(quotient, quotient - 1, quotient * b != a && (a < 0) != (b < 0));
}",
        cost: FUNCTION / 2,
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, scalar: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        divisor(at, scalar, b)?;
        Some(Interval::new(at.div(&a.low, &b.low), at.div(&a.high, &b.low)))
    }
}

/// The divisor, if it is a known positive integer.
fn divisor<A: Algebra>(at: &mut A, scalar: Scalar, b: &Bounds<A>) -> Option<i64> {
    let value = at.known(&b.low).filter(|value| *value > 0 && scalar != F32)?;
    (at.known(&b.high) == Some(value)).then_some(value)
}

impl Arithmetic for Div {
    const EVALUATE: fn(f64, f64) -> f64 = |a, b| a / b;

    #[inline(always)]
    fn integer<I: Integer>(a: I, b: I) -> I {
        a.floor_div(b)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        v.div(a, b)
    }

    fn gradient<A: Algebra>(at: &mut A, [_, b]: [&A::Value; 2], y: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        let of_a = at.div(g, b);
        let product = at.mul(&of_a, y);
        [Some(of_a), Some(at.neg(&product))]
    }
}

impl Binary for Mod {
    const DECLARATION: Declaration = Declaration {
        name: "mod",
        wgsl: &[
            (&[F32], Wgsl::scalar("float_mod({a}, {b})")),
            (&[I32], Wgsl::scalar("floor_mod({a}, {b})")),
            (&[I64], Wgsl::scalar("i64_floor_mod({a}, {b})")),
        ],
        library: "
fn floor_mod(a: i32, b: i32) -> i32 {
    return select(a - b * floor_div(a, b), 0, b == 0);
}

// What dividing x by y and rounding down leaves.
fn float_mod(x: f32, y: f32) -> f32 {
    let a = bitcast<u32>(x) & 0x7fffffffu;
    let b = bitcast<u32>(y) & 0x7fffffffu;
    if (b == 0u || b > 0x7f800000u || a >= 0x7f800000u) {
        return float_of_bits(0x7fc00000u);
    }
    let magnitude = rest_of_bits(a, b);
    let rest = bitcast<f32>(magnitude | (bitcast<u32>(x) & 0x80000000u));
    let differ = ((bitcast<u32>(x) ^ bitcast<u32>(y)) >> 31u) == 1u;
    return select(rest, rest + y, magnitude != 0u && differ);
}

// What division of positive floats leaves, exactly, of bits and as bits: eight digits of the quotient at a time.
fn rest_of_bits(a: u32, b: u32) -> u32 {
    if (a < b) {
        return a;
    }
    let exponent = max(b >> 23u, 1u);
    let divisor = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
    var rest = ((a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u)) % divisor;
    var digits = max(a >> 23u, 1u) - exponent;
    while (digits > 0u) {
        let step = min(digits, 8u);
        rest = (rest << step) % divisor;
        digits -= step;
    }
    if (rest == 0u) {
        return 0u;
    }
    let shift = min(23u - firstLeadingBit(rest), exponent - 1u);
    return (rest << shift) + ((exponent - shift - 1u) << 23u);
}",
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, scalar: Scalar, [_, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        let most = divisor(at, scalar, b)? - 1;
        Some(Interval::new(at.constant(scalar, 0.0), at.constant(scalar, most as f64)))
    }
}

impl Arithmetic for Mod {
    const EVALUATE: fn(f64, f64) -> f64 = |a, b| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
    };

    #[inline(always)]
    fn integer<I: Integer>(a: I, b: I) -> I {
        a.floor_mod(b)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        v.each_pair(a, b, |a, b| {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        })
    }

    fn gradient<A: Algebra>(at: &mut A, [a, b]: [&A::Value; 2], _: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        let quotient = at.div(a, b);
        let whole = at.unary(UnaryOp::Floor, &quotient);
        let product = at.mul(g, &whole);
        [Some(g.clone()), Some(at.neg(&product))]
    }
}
