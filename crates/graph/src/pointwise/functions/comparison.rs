use super::op::{Eq, Ge, Gt, Le, Lt, Ne};
use super::{Algebra, Binary, BinaryOp, Bounds, Comparison, Declaration, Interval, UnaryOp, Vectors, Wgsl};
use crate::Scalar::{self, Bool, F32, I32, I64};

/// Declares an order comparison. `$ends` are the bounds of the operands at which it is hardest to satisfy.
macro_rules! order {
    ($name:ident $text:literal $wgsl:literal $long:literal $ends:tt, ($a:ident, $b:ident) $holds:expr, $v:ident $mask:expr) => {
        impl Binary for $name {
            const DECLARATION: Declaration = Declaration {
                name: $text,
                wgsl: &[(&[F32, I32], Wgsl::both($wgsl)), (&[I64], Wgsl::scalar($long))],
                ..Declaration::OPERATION
            };

            fn interval<A: Algebra>(at: &mut A, _: Scalar, [a, b]: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
                let [least, most] = order!($ends a b);
                let [low, high] = [least, most].map(|(a, b)| at.binary(BinaryOp::$name, a, b));
                Some(Interval::new(low, high))
            }
        }

        impl Comparison for $name {
            #[inline(always)]
            fn holds<T: PartialOrd>($a: T, $b: T) -> bool {
                $holds
            }

            #[inline(always)]
            fn mask<V: Vectors>($v: V, $a: V::Floats, $b: V::Floats) -> V::Mask {
                $mask
            }
        }
    };
    ((high, low) $a:ident $b:ident) => { [(&$a.high, &$b.low), (&$a.low, &$b.high)] };
    ((low, high) $a:ident $b:ident) => { [(&$a.low, &$b.high), (&$a.high, &$b.low)] };
}

order!(Lt "lt" "{a} < {b}" "i64_lt({a}, {b})" (high, low), (a, b) a < b, v v.less(a, b));
order!(Le "le" "{a} <= {b}" "!i64_lt({b}, {a})" (high, low), (a, b) a <= b, v v.less_or_equal(a, b));
order!(Gt "gt" "{a} > {b}" "i64_lt({b}, {a})" (low, high), (a, b) a > b, v v.less(b, a));
order!(Ge "ge" "{a} >= {b}" "!i64_lt({a}, {b})" (low, high), (a, b) a >= b, v v.less_or_equal(b, a));

/// True everywhere if both are constant and equal; true anywhere if their bounds overlap.
fn same<A: Algebra>(at: &mut A, scalar: Scalar, [a, b]: [&Bounds<A>; 2]) -> Bounds<A> {
    if scalar == Bool {
        // Both true or both false.
        let [not_a, not_b] =
            [a, b].map(|x| Interval::new(at.unary(UnaryOp::Not, &x.high), at.unary(UnaryOp::Not, &x.low)));
        let (yes, no) =
            (a.zip(b, |a, b| at.binary(BinaryOp::And, a, b)), not_a.zip(&not_b, |a, b| at.binary(BinaryOp::And, a, b)));
        return yes.zip(&no, |yes, no| at.binary(BinaryOp::Or, yes, no));
    }
    let points = [(&a.low, &a.high), (&b.low, &b.high), (&a.low, &b.low)].map(|(x, y)| at.binary(BinaryOp::Eq, x, y));
    let always = at.binary(BinaryOp::And, &points[0], &points[1]);
    let meets = [(&a.low, &b.high), (&b.low, &a.high)].map(|(x, y)| at.binary(BinaryOp::Le, x, y));
    Interval::new(at.binary(BinaryOp::And, &always, &points[2]), at.binary(BinaryOp::And, &meets[0], &meets[1]))
}

impl Binary for Eq {
    const DECLARATION: Declaration = Declaration {
        name: "eq",
        wgsl: &[(&[F32, I32, Bool], Wgsl::both("{a} == {b}")), (&[I64], Wgsl::scalar("all({a} == {b})"))],
        commutes: true,
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, scalar: Scalar, operands: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        Some(same(at, scalar, operands))
    }
}

impl Comparison for Eq {
    #[inline(always)]
    fn holds<T: PartialOrd>(a: T, b: T) -> bool {
        a == b
    }

    #[inline(always)]
    fn mask<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Mask {
        v.equal(a, b)
    }
}

impl Binary for Ne {
    const DECLARATION: Declaration = Declaration {
        name: "ne",
        wgsl: &[
            // naga translates `!=` to a comparison that is false for NaN.
            (&[F32], Wgsl::both("!({a} == {b})")),
            (&[I32, Bool], Wgsl::both("{a} != {b}")),
            (&[I64], Wgsl::scalar("any({a} != {b})")),
        ],
        commutes: true,
        ..Declaration::OPERATION
    };

    fn interval<A: Algebra>(at: &mut A, scalar: Scalar, operands: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        let same = same(at, scalar, operands);
        Some(Interval::new(at.unary(UnaryOp::Not, &same.high), at.unary(UnaryOp::Not, &same.low)))
    }
}

impl Comparison for Ne {
    #[inline(always)]
    fn holds<T: PartialOrd>(a: T, b: T) -> bool {
        a != b
    }

    #[inline(always)]
    fn mask<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Mask {
        v.not(v.equal(a, b))
    }
}
