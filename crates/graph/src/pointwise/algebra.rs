use super::dag::{Dag, ExprId};
use super::functions::{BinaryOp, UnaryOp};
use crate::Scalar;

/// A domain in which scalar functions are evaluated: f64, integers, expressions, shader source.
///
/// Bounds and gradients of functions are written in terms of functions, so they are valid in every domain.
pub trait Algebra {
    /// A scalar.
    type Value: Clone;

    /// A constant of a type.
    fn constant(&mut self, scalar: Scalar, value: f64) -> Self::Value;

    /// A function of one scalar.
    fn unary(&mut self, op: UnaryOp, a: &Self::Value) -> Self::Value;

    /// A function of two scalars of one type.
    fn binary(&mut self, op: BinaryOp, a: &Self::Value, b: &Self::Value) -> Self::Value;

    /// `condition ? a : b`
    fn select(&mut self, condition: &Self::Value, a: &Self::Value, b: &Self::Value) -> Self::Value;

    /// The value of an integer, if it is a constant.
    fn known(&self, value: &Self::Value) -> Option<i64>;

    /// A float.
    fn number(&mut self, value: f64) -> Self::Value {
        self.constant(Scalar::F32, value)
    }

    /// `-a`
    fn neg(&mut self, a: &Self::Value) -> Self::Value {
        self.unary(UnaryOp::Neg, a)
    }

    /// `a + b`
    fn add(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value {
        self.binary(BinaryOp::Add, a, b)
    }

    /// `a - b`
    fn sub(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`
    fn mul(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// `a / b`
    fn div(&mut self, a: &Self::Value, b: &Self::Value) -> Self::Value {
        self.binary(BinaryOp::Div, a, b)
    }
}

/// f64 values of scalars of a type; bools are 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub Scalar);

impl Algebra for Numbers {
    type Value = f64;

    fn constant(&mut self, _: Scalar, value: f64) -> f64 {
        value
    }

    fn unary(&mut self, op: UnaryOp, a: &f64) -> f64 {
        op.evaluate(*a)
    }

    fn binary(&mut self, op: BinaryOp, a: &f64, b: &f64) -> f64 {
        let value = op.evaluate(*a, *b);
        if op == BinaryOp::Div && self.0 != Scalar::F32 { value.floor() } else { value }
    }

    fn select(&mut self, condition: &f64, a: &f64, b: &f64) -> f64 {
        if *condition != 0.0 { *a } else { *b }
    }

    fn known(&self, value: &f64) -> Option<i64> {
        (value.fract() == 0.0 && value.abs() < EXACT).then_some(*value as i64)
    }
}

/// Integers below this magnitude are exact in f64.
pub(super) const EXACT: f64 = 9_007_199_254_740_992.0;

/// 64-bit integers; bools are 0 and 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integers;

impl Algebra for Integers {
    type Value = i64;

    fn constant(&mut self, _: Scalar, value: f64) -> i64 {
        value as i64
    }

    fn unary(&mut self, op: UnaryOp, a: &i64) -> i64 {
        op.evaluate_int(Scalar::I64, *a)
    }

    fn binary(&mut self, op: BinaryOp, a: &i64, b: &i64) -> i64 {
        op.evaluate_int(Scalar::I64, *a, *b)
    }

    fn select(&mut self, condition: &i64, a: &i64, b: &i64) -> i64 {
        if *condition != 0 { *a } else { *b }
    }

    fn known(&self, value: &i64) -> Option<i64> {
        Some(*value)
    }
}

impl Algebra for Dag {
    type Value = ExprId;

    fn constant(&mut self, scalar: Scalar, value: f64) -> ExprId {
        match scalar {
            Scalar::F32 => self.float(value as f32),
            _ => Self::constant(self, scalar, value as i64),
        }
    }

    fn unary(&mut self, op: UnaryOp, a: &ExprId) -> ExprId {
        Self::unary(self, op, *a)
    }

    fn binary(&mut self, op: BinaryOp, a: &ExprId, b: &ExprId) -> ExprId {
        Self::binary(self, op, *a, *b)
    }

    fn select(&mut self, condition: &ExprId, a: &ExprId, b: &ExprId) -> ExprId {
        Self::select(self, *condition, *a, *b)
    }

    fn known(&self, value: &ExprId) -> Option<i64> {
        self.range(*value).filter(|(low, high)| low == high).map(|(low, _)| low)
    }
}
