use super::op::{Ceil, Floor, Round, Trunc};
use super::{Algebra, Bounds, Declaration, Unary, UnaryOp, Vectors, Wgsl};
use crate::Scalar::{self, F32};

macro_rules! rounding {
    ($($name:ident $text:literal $wgsl:literal $function:ident),*) => {$(
        impl Unary for $name {
            const DECLARATION: Declaration = Declaration {
                name: $text,
                wgsl: &[(&[F32], Wgsl::both($wgsl))],
                ..Declaration::OPERATION
            };
            const EVALUATE: fn(f64) -> f64 = f64::$function;

            #[inline(always)]
            fn lanes<V: Vectors>(v: V, x: V::Floats) -> V::Floats {
                v.each(x, f32::$function)
            }

            fn interval<A: Algebra>(at: &mut A, _: Scalar, a: &Bounds<A>) -> Option<Bounds<A>> {
                Some(a.map(|end| at.unary(UnaryOp::$name, end)))
            }
        }
    )*};
}

rounding! {
    Floor "floor" "floor({a})" floor,
    Ceil "ceil" "ceil({a})" ceil,
    Trunc "trunc" "trunc({a})" trunc,
    Round "round" "round({a})" round_ties_even
}
