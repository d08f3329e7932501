//! Scalar functions, each declared once: value, WGSL, vector form, bounds, gradient and cost.
//!
//! A function has an entry in the lists in `op.rs` and implements [`Unary`], [`Arithmetic`] or [`Comparison`].

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

pub use op::{BinaryOp, BinaryVisitor, Exp, Relu, Sigmoid, Silu, Tanh, UnaryOp, UnaryVisitor};
pub use wgsl::Wgsl;

use super::algebra::Algebra;
use super::integer::Integer;
use super::interval::Interval;
use super::vectors::Vectors;
use crate::Scalar;

/// Bounds of a scalar.
type Bounds<A> = Interval<<A as Algebra>::Value>;

/// Cost in operations of a function such as the exponential.
pub const FUNCTION: u64 = 8;

/// Properties of a function that do not depend on its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// The name used in drawings and errors.
    pub name: &'static str,
    /// The argument types for which it is defined, with its WGSL.
    pub wgsl: &'static [(&'static [Scalar], Wgsl)],
    /// WGSL functions that it calls, in addition to those in `shaders/functions.wgsl`.
    pub library: &'static str,
    /// Cost in operations on floats.
    pub cost: u64,
    /// True if it is commutative.
    pub commutes: bool,
}

impl Declaration {
    const FUNCTION: Self = Self { name: "", wgsl: &[], library: "", cost: FUNCTION, commutes: false };
    const OPERATION: Self = Self { cost: 1, ..Self::FUNCTION };

    /// The function in WGSL; `None` if it is not defined for the type.
    pub fn wgsl(&self, scalar: Scalar) -> Option<Wgsl> {
        self.wgsl.iter().find(|(types, _)| types.contains(&scalar)).map(|(_, wgsl)| *wgsl)
    }
}

/// A function of one scalar.
pub trait Unary {
    /// Its properties.
    const DECLARATION: Declaration;
    /// Its value in f64.
    const EVALUATE: fn(f64) -> f64;

    /// Its value for integers and bools, if defined for them.
    #[inline(always)]
    fn integer<I: Integer>(x: I) -> I {
        x
    }

    /// Its values for floats, if defined for them.
    #[inline(always)]
    fn lanes<V: Vectors>(_: V, x: V::Floats) -> V::Floats {
        x
    }

    /// Bounds of its values; `None` if unbounded or unknown.
    fn interval<A: Algebra>(_: &mut A, _: Scalar, _: &Bounds<A>) -> Option<Bounds<A>> {
        None
    }

    /// The gradient of `x`, given the gradient of the value `y`; `None` if it is 0 or undefined everywhere.
    fn gradient<A: Algebra>(_: &mut A, _x: &A::Value, _y: &A::Value, _g: &A::Value) -> Option<A::Value> {
        None
    }
}

/// A function of two scalars of one type.
pub trait Binary {
    /// Its properties.
    const DECLARATION: Declaration;

    /// Bounds of its values; `None` if unbounded or unknown.
    fn interval<A: Algebra>(_: &mut A, _: Scalar, _: [&Bounds<A>; 2]) -> Option<Bounds<A>> {
        None
    }
}

/// A function of two scalars with a result of their type.
pub trait Arithmetic: Binary {
    /// Its value in f64.
    const EVALUATE: fn(f64, f64) -> f64;

    /// Its value for integers and bools, if defined for them.
    #[inline(always)]
    fn integer<I: Integer>(a: I, _: I) -> I {
        a
    }

    /// Its values for floats, if defined for them.
    #[inline(always)]
    fn lanes<V: Vectors>(_: V, a: V::Floats, _: V::Floats) -> V::Floats {
        a
    }

    /// The gradients of the operands, given the gradient of the value `y`; `None` for one that is 0 or undefined
    /// everywhere.
    fn gradient<A: Algebra>(_: &mut A, _: [&A::Value; 2], _y: &A::Value, _g: &A::Value) -> [Option<A::Value>; 2] {
        [None, None]
    }
}

/// A function of two scalars with a boolean result.
pub trait Comparison: Binary {
    /// Its value.
    fn holds<T: PartialOrd>(a: T, b: T) -> bool;

    /// Its values for floats.
    fn mask<V: Vectors>(v: V, a: V::Floats, b: V::Floats) -> V::Mask;
}
