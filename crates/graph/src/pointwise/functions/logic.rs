use super::op::{And, Not, Or};
use super::{Algebra, Arithmetic, Binary, BinaryOp, Bounds, Declaration, Integer, Interval, Unary, UnaryOp, Wgsl};
use crate::Scalar::{self, Bool, I32, I64};

impl Unary for Not {
    const DECLARATION: Declaration =
        Declaration { name: "not", wgsl: &[(&[Bool], Wgsl::both("!{a}"))], cost: 0, ..Declaration::FUNCTION };
    const EVALUATE: fn(f64) -> f64 = |x| 1.0 - x;

    #[inline(always)]
    fn integer<I: Integer>(x: I) -> I {
        I::ONE.minus(x)
    }

    fn interval<A: Algebra>(at: &mut A, _: Scalar, a: &Bounds<A>) -> Option<Bounds<A>> {
        Some(Interval::new(at.unary(UnaryOp::Not, &a.high), at.unary(UnaryOp::Not, &a.low)))
    }
}

macro_rules! connective {
    ($($name:ident $text:literal $wgsl:literal, ($a:ident, $b:ident) $truth:expr, $bits:expr);*) => {$(
        impl Binary for $name {
            const DECLARATION: Declaration = Declaration {
                name: $text,
                wgsl: &[(&[I32, Bool], Wgsl::both($wgsl)), (&[I64], Wgsl::scalar($wgsl))],
                commutes: true,
                ..Declaration::OPERATION
            };

            fn interval<A: Algebra>(at: &mut A, scalar: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
                (scalar == Scalar::Bool).then(|| a.zip(b, |a, b| at.binary(BinaryOp::$name, a, b)))
            }
        }

        impl Arithmetic for $name {
            const EVALUATE: fn(f64, f64) -> f64 = |$a, $b| u8::from($truth).into();

            #[inline(always)]
            fn integer<I: Integer>($a: I, $b: I) -> I {
                $bits
            }
        }
    )*};
}

connective! {
    And "and" "{a} & {b}", (a, b) a != 0.0 && b != 0.0, a & b;
    Or "or" "{a} | {b}", (a, b) a != 0.0 || b != 0.0, a | b
}
