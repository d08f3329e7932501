//! Steps of chains of float functions, grouped into passes.

use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use std::convert::Infallible;

/// A function of the previous step's value `x`. `A` identifies other operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ChainStep<A> {
    Unary(UnaryOp),
    /// `op(x, x)`
    Both(BinaryOp),
    /// `op(x, other)`
    Left(BinaryOp, A),
    /// `op(other, x)`
    Right(BinaryOp, A),
    /// `x` if the comparison of `a` and `b` equals `side`, else `other`.
    Choose {
        comparison: BinaryOp,
        a: A,
        b: A,
        side: bool,
        other: A,
    },
}

impl<A: Copy> ChainStep<A> {
    /// Replaces the operands.
    pub(super) fn map<B>(self, mut to: impl FnMut(A) -> B) -> ChainStep<B> {
        let Ok(step) = self.try_map(|a| Ok::<B, Infallible>(to(a)));
        step
    }

    /// [`ChainStep::map`] with a fallible function.
    pub(super) fn try_map<B, E>(self, mut to: impl FnMut(A) -> Result<B, E>) -> Result<ChainStep<B>, E> {
        Ok(match self {
            Self::Unary(op) => ChainStep::Unary(op),
            Self::Both(op) => ChainStep::Both(op),
            Self::Left(op, a) => ChainStep::Left(op, to(a)?),
            Self::Right(op, a) => ChainStep::Right(op, to(a)?),
            Self::Choose { comparison, a, b, side, other } => {
                ChainStep::Choose { comparison, a: to(a)?, b: to(b)?, side, other: to(other)? }
            }
        })
    }
}

/// A sum, difference or product with an operand that is constant in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Linear {
    Plus,
    Minus,
    /// The operand minus the value.
    From,
    Times,
}

/// Maximum number of row-constant operands in one pass.
pub(super) const CONSTANTS: usize = 3;

/// An operation on a block of floats. Operands are identified by number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pass {
    Affine(Affine),
    ChainStep(ChainStep<u16>),
}

/// Linear functions with row-constant operands, then a product, then a sum or difference, then a function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Affine {
    pub constants: [Option<(Linear, u16)>; CONSTANTS],
    pub times: Option<u16>,
    pub plus: Option<(f32, u16)>,
    /// One of [`CURVES`].
    pub then: Option<UnaryOp>,
}

/// Functions that a pass applies to the results of affine ones.
pub(super) const CURVES: [UnaryOp; 4] = [UnaryOp::Exp, UnaryOp::Sigmoid, UnaryOp::Silu, UnaryOp::Tanh];

/// Groups all steps, in order, into passes. `is_constant` is true for an operand that is constant in a row.
pub(super) fn passes(steps: &[ChainStep<u16>], is_constant: impl Fn(u16) -> bool) -> Vec<Pass> {
    let mut passes: Vec<Pass> = vec![];
    for &step in steps {
        let joined = match passes.last_mut() {
            Some(Pass::Affine(last)) => last.join(step, &is_constant),
            _ => false,
        };
        if !joined {
            let mut affine = Affine::default();
            let is_affine = affine.join(step, &is_constant);
            passes.push(if is_affine { Pass::Affine(affine) } else { Pass::ChainStep(step) });
        }
    }
    passes
}

impl Pass {
    /// True if `holds` is true for all operands.
    #[inline(always)]
    pub(super) fn all(self, holds: impl Fn(u16) -> bool) -> bool {
        match self {
            Self::Affine(Affine { constants, times, plus, then: _ }) => {
                let constants = constants.into_iter().flatten().map(|(_, operand)| operand);
                constants.chain(times).chain(plus.map(|(_, operand)| operand)).all(holds)
            }
            Self::ChainStep(ChainStep::Unary(_) | ChainStep::Both(_)) => true,
            Self::ChainStep(ChainStep::Left(_, operand) | ChainStep::Right(_, operand)) => holds(operand),
            Self::ChainStep(ChainStep::Choose { a, b, other, .. }) => holds(a) && holds(b) && holds(other),
        }
    }
}

impl Affine {
    /// True if the constants are at most two terms, followed by at most one factor.
    pub(super) fn is_shift(&self) -> bool {
        use Linear::{Minus, Plus, Times};
        matches!(
            self.constants.map(|constant| constant.map(|(linear, _)| linear)),
            [None | Some(Plus | Minus | Times), None, None]
                | [Some(Plus | Minus), Some(Times), None]
                | [Some(Plus | Minus), Some(Plus | Minus), None | Some(Times)]
        )
    }

    /// True if [`Affine::is_shift`] holds, and there are no other operands.
    pub(super) fn is_only_shift(&self) -> bool {
        self.is_shift() && self.times.is_none() && self.plus.is_none() && self.then.is_none()
    }

    /// Adds a step; false if the pass cannot include it.
    fn join(&mut self, step: ChainStep<u16>, is_constant: impl Fn(u16) -> bool) -> bool {
        let is_empty = *self == Self::default();
        let Self { constants, times, plus, then } = self;
        let (linear, other) = match step {
            _ if then.is_some() => return false,
            ChainStep::Unary(op) if CURVES.contains(&op) && !is_empty => {
                *then = Some(op);
                return true;
            }
            ChainStep::Left(BinaryOp::Add, other) => (Linear::Plus, other),
            ChainStep::Left(BinaryOp::Sub, other) => (Linear::Minus, other),
            ChainStep::Right(BinaryOp::Sub, other) => (Linear::From, other),
            ChainStep::Left(BinaryOp::Mul, other) => (Linear::Times, other),
            _ => return false,
        };
        if plus.is_some() {
            return false;
        }
        let is_constant = is_constant(other);
        match (linear, constants.iter_mut().find(|constant| constant.is_none())) {
            (_, Some(free)) if is_constant && times.is_none() => *free = Some((linear, other)),
            (Linear::Plus, _) => *plus = Some((1.0, other)),
            (Linear::Minus, _) => *plus = Some((-1.0, other)),
            (Linear::Times, _) if times.is_none() && !is_constant => *times = Some(other),
            (Linear::Times | Linear::From, _) => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_sums_and_products_share_a_pass() {
        use BinaryOp::{Add, Mul, Sub};
        // Operands below 10 are constant in a row.
        let norm = [
            ChainStep::Left(Sub, 1),
            ChainStep::Left(Sub, 2),
            ChainStep::Left(Mul, 3),
            ChainStep::Left(Mul, 10),
            ChainStep::Left(Add, 11),
        ];
        let whole = Affine {
            constants: [Some((Linear::Minus, 1)), Some((Linear::Minus, 2)), Some((Linear::Times, 3))],
            times: Some(10),
            plus: Some((1.0, 11)),
            then: None,
        };
        assert!(whole.is_shift() && !whole.is_only_shift());
        let exp = passes(&[&norm[..], &[ChainStep::Unary(UnaryOp::Exp)]].concat(), |operand| operand < 10);
        assert_eq!(exp, [Pass::Affine(Affine { then: Some(UnaryOp::Exp), ..whole })]);
        let whole = Pass::Affine(whole);
        assert_eq!(passes(&norm, |operand| operand < 10), [whole]);
        let gated: Vec<_> = norm.into_iter().chain([ChainStep::Left(Mul, 12), ChainStep::Left(Add, 1)]).collect();
        let found = passes(&gated, |operand| operand < 10);
        let gate = Pass::Affine(Affine { times: Some(12), plus: Some((1.0, 1)), ..Affine::default() });
        assert_eq!(found, [whole, gate]);
        let other = [ChainStep::Unary(UnaryOp::Silu), ChainStep::Right(Sub, 12)];
        assert_eq!(passes(&other, |operand| operand < 10), other.map(Pass::ChainStep));
    }
}
