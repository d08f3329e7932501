//! Functions of scalars, each declared once: its value, WGSL, vectors, bounds, gradient and cost.
//!
//! A function is an entry of the lists in `op.rs` and an implementation of [`Unary`], [`Arithmetic`] or [`Comparison`].

mod arithmetic;
mod comparison;
mod error;
mod exponential;
mod logic;
mod op;
mod order;
mod power;
mod rounding;
#[cfg(test)]
mod tests;
mod trigonometry;
mod wgsl;

pub use op::{BinaryOp, BinaryVisitor, Exp, UnaryOp, UnaryVisitor};
pub use wgsl::Wgsl;

use super::algebra::Algebra;
use super::integer::Integer;
use super::interval::Interval;
use super::vectors::Vectors;
use crate::Scalar;

/// Bounds of a scalar.
type Bounds<A> = Interval<<A as Algebra>::Value>;

/// Operations that a function such as the exponential takes.
pub const FUNCTION: u64 = 8;

/// What is known of a function whatever its arguments are.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// The name used in drawings and errors.
    pub name: &'static str,
    /// The types of arguments that it is defined for, with its WGSL.
    pub wgsl: &'static [(&'static [Scalar], Wgsl)],
    /// WGSL functions that it calls, apart from those of `shaders/functions.wgsl`.
    pub library: &'static str,
    /// Operations that it takes of floats.
    pub cost: u64,
    /// True if its operands may be exchanged.
    pub commutes: bool,
}

impl Declaration {
    const FUNCTION: Self = Self { name: "", wgsl: &[], library: "", cost: FUNCTION, commutes: false };
    const OPERATION: Self = Self { cost: 1, ..Self::FUNCTION };

    /// The function in WGSL; `None` where it is not defined.
    pub fn wgsl(&self, scalar: Scalar) -> Option<Wgsl> {
        self.wgsl.iter().find(|(types, _)| types.contains(&scalar)).map(|(_, wgsl)| *wgsl)
    }
}

/// A function of one scalar.
pub trait Unary {
    /// What is known of it.
    const DECLARATION: Declaration;
    /// Its value in double precision.
    const EVALUATE: fn(f64) -> f64;

    /// Its value for integers and truth values, where it takes those.
    #[inline(always)]
    fn integer<I: Integer>(x: I) -> I {
        x
    }

    /// Its values for floats, where it takes those.
    #[inline(always)]
    fn lanes<V: Vectors>(_: V, x: V::Floats) -> V::Floats {
        x
    }

    /// Bounds of its values; `None` where there are none or they are not known.
    fn interval<A: Algebra>(_: &mut A, _: Scalar, _: &Bounds<A>) -> Option<Bounds<A>> {
        None
    }

    /// The gradient of `x`, given that of the value `y`; `None` where it is 0 or undefined everywhere.
    fn gradient<A: Algebra>(_: &mut A, _x: &A::Value, _y: &A::Value, _g: &A::Value) -> Option<A::Value> {
        None
    }
}

/// A function of two scalars of one type.
pub trait Binary {
    /// What is known of it.
    const DECLARATION: Declaration;

    /// Bounds of its values; `None` where there are none or they are not known.
    fn interval<A: Algebra>(_: &mut A, _: Scalar, _: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        None
    }
}

/// A function of two scalars that gives one of their type.
pub trait Arithmetic: Binary {
    /// Its value in double precision.
    const EVALUATE: fn(f64, f64) -> f64;

    /// Its value for integers and truth values, where it takes those.
    #[inline(always)]
    fn integer<I: Integer>(a: I, _: I) -> I {
        a
    }

    /// Its values for floats, where it takes those.
    #[inline(always)]
    fn lanes<V: Vectors>(_: V, a: V::Floats, _: V::Floats) -> V::Floats {
        a
    }

    /// The gradients of the operands, given that of the value `y`; `None` where one is 0 or undefined everywhere.
    fn gradient<A: Algebra>(_: &mut A, _: [&A::Value; 2], _y: &A::Value, _g: &A::Value) -> [Option<A::Value>; 2] {
        [None, None]
    }
}

/// A function of two scalars that gives a truth value.
pub trait Comparison: Binary {
    /// Its value.
    fn holds<T: PartialOrd>(a: T, b: T) -> bool;

    /// Its values for floats.
    fn mask<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Mask;
}
