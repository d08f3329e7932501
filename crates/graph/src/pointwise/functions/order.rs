use super::op::{Max, Min, Relu};
use super::{Algebra, Arithmetic, Binary, BinaryOp, Bounds, Declaration, Integer, Unary, UnaryOp, Vectors, Wgsl};
use crate::Scalar::{self, F32, I32, I64};

/// The larger, or NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

impl Unary for Relu {
    const DECLARATION: Declaration = Declaration {
        name: "relu",
        wgsl: &[(&[F32], Wgsl::forms("larger(0.0f, {a})", "larger4(vec4<f32>(0.0f), {a})"))],
        ..Declaration::OPERATION
    };
    const EVALUATE: fn(f64) -> f64 = |x| larger(x, 0.0);

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
        v.at_least(x, 0.0)
    }

    fn interval<A: Algebra>(at: &mut A, _: Scalar, a: &Bounds<A>) -> Option<Bounds<A>> {
        Some(a.map(|end| at.unary(UnaryOp::Relu, end)))
    }

    // Depends only on the value, which its readers keep in memory anyway.
    fn gradient<A: Algebra>(at: &mut A, _: &A::Value, y: &A::Value, g: &A::Value) -> Option<A::Value> {
        let zero = at.number(0.0);
        let above = at.binary(BinaryOp::Gt, y, &zero);
        Some(at.select(&above, g, &zero))
    }
}

/// The gradients of `a` and `b`: all of it for the selected one, half of it for each if they are equal.
fn shared<A: Algebra>(at: &mut A, is_first: BinaryOp, [a, b]: [&A::Value; 2], g: &A::Value) -> [Option<A::Value>; 2] {
    let (zero, half) = (at.number(0.0), at.number(0.5));
    let half = at.mul(g, &half);
    let (first, equal) = (at.binary(is_first, a, b), at.binary(BinaryOp::Eq, a, b));
    [(g, &zero), (&zero, g)].map(|(yes, no)| {
        let otherwise = at.select(&equal, &half, no);
        Some(at.select(&first, yes, &otherwise))
    })
}

impl Binary for Min {
    const DECLARATION: Declaration = Declaration {
        name: "minimum",
        wgsl: &[
            (&[F32], Wgsl::forms("smaller({a}, {b})", "smaller4({a}, {b})")),
            (&[I32], Wgsl::both("min({a}, {b})")),
            (&[I64], Wgsl::scalar("select({b}, {a}, i64_lt({a}, {b}))")),
        ],
        library: "
// The smaller, or NaN if either is.
fn smaller(a: f32, b: f32) -> f32 {
    return select(a, b, b < a || is_nan(b));
}

fn smaller4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return select(a, b, (b < a) | is_nan4(b));
}",
        commutes: true,
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, _: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        Some(a.zip(b, |a, b| at.binary(BinaryOp::Min, a, b)))
    }
}

impl Arithmetic for Min {
    const EVALUATE: fn(f64, f64) -> f64 = |a, b| -larger(-a, -b);

    #[inline(always)]
    fn integer<I: Integer>(a: I, b: I) -> I {
        a.min(b)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        let smallest = v.select(v.less_or_equal(a, b), a, b);
        v.select(v.equal(a, a), smallest, a)
    }

    fn gradient<A: Algebra>(at: &mut A, operands: [&A::Value; 2], _: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        shared(at, BinaryOp::Lt, operands, g)
    }
}

impl Binary for Max {
    const DECLARATION: Declaration = Declaration {
        name: "maximum",
        wgsl: &[
            (&[F32], Wgsl::forms("larger({a}, {b})", "larger4({a}, {b})")),
            (&[I32], Wgsl::both("max({a}, {b})")),
            (&[I64], Wgsl::scalar("select({a}, {b}, i64_lt({a}, {b}))")),
        ],
        library: "
// The larger, or NaN if either is.
fn larger(a: f32, b: f32) -> f32 {
    return select(a, b, b > a || is_nan(b));
}

fn larger4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return select(a, b, (b > a) | is_nan4(b));
}",
        commutes: true,
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, _: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        Some(a.zip(b, |a, b| at.binary(BinaryOp::Max, a, b)))
    }
}

impl Arithmetic for Max {
    const EVALUATE: fn(f64, f64) -> f64 = larger;

    #[inline(always)]
    fn integer<I: Integer>(a: I, b: I) -> I {
        a.max(b)
    }

    #[inline(always)]
    fn lanes<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Floats {
        let largest = v.select(v.less_or_equal(b, a), a, b);
        v.select(v.equal(a, a), largest, a)
    }

    fn gradient<A: Algebra>(at: &mut A, operands: [&A::Value; 2], _: &A::Value, g: &A::Value) -> [Option<A::Value>; 2] {
        shared(at, BinaryOp::Gt, operands, g)
    }
}
