//! Affine passes over the points of a row.

use super::arch;
use super::chain::Block;
use super::lanes::{Lanes, Row};
use super::step::{CONSTANTS, Linear};
use pulp::Simd;

/// An affine pass over rows.
#[derive(Clone, Copy)]
pub(super) struct AffineRows<'a> {
    pub values: Spaced<'a>,
    pub constants: [RowConstant<'a>; CONSTANTS],
    pub factors: Option<Spaced<'a>>,
    pub terms: Terms<'a>,
    /// True if [`Affine::is_shift`](super::step::Affine::is_shift) holds.
    pub is_shift: bool,
}

/// What is added in an affine pass, the same for all points of a row or with a sign.
#[derive(Clone, Copy)]
pub(super) enum Terms<'a> {
    None,
    Row(RowConstant<'a>),
    Each(f32, Spaced<'a>),
}

impl<'a> Terms<'a> {
    /// The terms of a block's rows; `None` if they are not evenly spaced.
    #[inline(always)]
    pub(super) fn of(terms: Option<(f32, Lanes<'a, f32>)>, block: Block) -> Option<Self> {
        match terms {
            None => Some(Self::None),
            Some((sign, operand @ (Lanes::Same(_) | Lanes::Rows(_)))) => {
                let linear = if sign < 0.0 { Linear::Minus } else { Linear::Plus };
                Some(Self::Row(RowConstant::of(linear, operand, block)))
            }
            Some((sign, operand)) => Some(Self::Each(sign, block.spaced(operand)?)),
        }
    }

    /// The terms of a single row.
    #[inline(always)]
    pub(super) fn one(sign: f32, row: Row<'a, f32>, points: usize) -> Self {
        match row {
            Row::Same(value) => Self::Row(RowConstant::fixed(Linear::Plus, value * sign)),
            Row::Each(_) => Self::Each(sign, Spaced::one(row, points)),
        }
    }
}

/// [`Terms`] of a loop.
const NO_TERMS: u8 = 0;
const ROW_TERM: u8 = 1;
const EACH_TERM: u8 = 2;

/// The rows that a pass writes.
pub(super) struct RowsOut<'s> {
    pub out: &'s mut [f32],
    pub rows: usize,
    pub stride: usize,
}

impl AffineRows<'_> {
    /// Applies the constants, then factors, then terms, and `store`s the results. Rounds as separate steps would.
    #[inline(always)]
    pub(super) fn compute<S: Simd>(self, simd: S, to: RowsOut<'_>, store: impl Fn(&mut S::f32s, S::f32s) + Copy) {
        match self.is_shift {
            true => self.each_row_with::<S, Shift<S>>(simd, to, unchanged, store),
            false => self.each_row_with::<S, Steps<S>>(simd, to, unchanged, store),
        }
    }

    /// [`AffineRows::compute`], then a function.
    #[inline(always)]
    pub(super) fn compute_then<S: Simd>(self, simd: S, to: RowsOut<'_>, then: impl Fn(S::f32s) -> S::f32s + Copy) {
        self.each_row_with::<S, Steps<S>>(
            simd,
            to,
            then,
            #[inline(always)]
            |out, value| *out = value,
        );
    }

    #[inline(always)]
    fn each_row_with<S: Simd, C: Constants<S>>(
        self,
        simd: S,
        to: RowsOut<'_>,
        then: impl Fn(S::f32s) -> S::f32s + Copy,
        store: impl Fn(&mut S::f32s, S::f32s) + Copy,
    ) {
        match (self.factors, self.terms) {
            (None, Terms::None) => self.each_row::<S, C, false, NO_TERMS>(simd, to, then, store),
            (None, Terms::Row(_)) => self.each_row::<S, C, false, ROW_TERM>(simd, to, then, store),
            (None, Terms::Each(..)) => self.each_row::<S, C, false, EACH_TERM>(simd, to, then, store),
            (Some(_), Terms::None) => self.each_row::<S, C, true, NO_TERMS>(simd, to, then, store),
            (Some(_), Terms::Row(_)) => self.each_row::<S, C, true, ROW_TERM>(simd, to, then, store),
            (Some(_), Terms::Each(..)) => self.each_row::<S, C, true, EACH_TERM>(simd, to, then, store),
        }
    }

    #[inline(always)]
    fn each_row<S: Simd, C: Constants<S>, const T: bool, const P: u8>(
        self,
        simd: S,
        RowsOut { out, rows, stride }: RowsOut<'_>,
        then: impl Fn(S::f32s) -> S::f32s,
        store: impl Fn(&mut S::f32s, S::f32s),
    ) {
        let factors = self.factors.filter(|_| T).unwrap_or(self.values);
        let (row_term, sign, terms) = match self.terms {
            Terms::Each(sign, terms) if P == EACH_TERM => (RowConstant::NONE, sign, terms),
            Terms::Row(term) => (term, 1.0, self.values),
            _ => (RowConstant::NONE, 1.0, self.values),
        };
        let sign = simd.splat_f32s(sign);
        for (n, out) in out.chunks_mut(stride.max(1)).take(rows).enumerate() {
            let Some(out) = out.get_mut(..self.values.points) else { continue };
            let constants = C::of(simd, self.constants.map(|constant| constant.scale(n)));
            let term = simd.splat_f32s(if P == ROW_TERM { row_term.scale(n).1 } else { 0.0 });
            let function = Function::<S, C, T, P> { constants, sign, term };
            let (out, rest) = S::as_mut_simd_f32s(out);
            let [(values, x), (factors, factor), (terms, term)] =
                [self.values, factors, terms].map(|rows| S::as_simd_f32s(rows.row(n)));
            for (((out, &x), &factor), &term) in out.iter_mut().zip(values).zip(factors).zip(terms) {
                store(out, then(function.apply(simd, x, factor, term)));
            }
            if !rest.is_empty() {
                let [x, factor, term] = [x, factor, term].map(|last| simd.partial_load_f32s(last));
                simd.partial_store_f32s(rest, then(function.apply(simd, x, factor, term)));
            }
        }
    }
}

#[inline(always)]
fn unchanged<T>(x: T) -> T {
    x
}

/// Rows of floats, `pitch` apart.
#[derive(Clone, Copy)]
pub(super) struct Spaced<'a> {
    pub values: &'a [f32],
    pub first: usize,
    pub pitch: usize,
    pub points: usize,
}

impl<'a> Spaced<'a> {
    /// A single row; empty if all of its points have the same value.
    #[inline(always)]
    pub(super) fn one(row: Row<'a, f32>, points: usize) -> Self {
        let values = match row {
            Row::Each(values) => values,
            Row::Same(_) => &[],
        };
        Self { values, first: 0, pitch: 0, points }
    }

    #[inline(always)]
    pub(super) fn row(self, n: usize) -> &'a [f32] {
        let first = self.first + n * self.pitch;
        self.values.get(first..first + self.points).unwrap_or(&[])
    }
}

/// A linear function with an operand that is constant in a row. The bits of its factor and its term are those of the
/// operand or fixed ones, so that a row takes no branch.
#[derive(Clone, Copy)]
pub(super) struct RowConstant<'a> {
    /// By row; empty if rows share `same`.
    values: &'a [f32],
    same: f32,
    /// Bits that the factor takes from the operand, and its other bits.
    factor: (u32, u32),
    /// Bits that the term takes from the operand, and those that differ from these.
    term: (u32, u32),
}

impl<'a> RowConstant<'a> {
    /// The function `x * 1`.
    pub(super) const NONE: Self = Self::fixed(Linear::Times, 1.0);

    const fn fixed(linear: Linear, same: f32) -> Self {
        let (one, sign, all) = (1_f32.to_bits(), (-0_f32).to_bits(), u32::MAX);
        let (factor, term) = match linear {
            Linear::Plus => ((0, one), (all, 0)),
            Linear::Minus => ((0, one), (all, sign)),
            Linear::From => ((0, one | sign), (all, 0)),
            Linear::Times => ((all, 0), (0, sign)),
        };
        Self { values: &[], same, factor, term }
    }

    /// For the rows of a block.
    #[inline(always)]
    pub(super) fn of(linear: Linear, operand: Lanes<'a, f32>, block: Block) -> Self {
        match operand {
            Lanes::Rows(values) => Self { values: values.get(block.row..).unwrap_or(&[]), ..Self::fixed(linear, 0.0) },
            Lanes::Same(same) => Self::fixed(linear, same),
            Lanes::Each(_) | Lanes::Strided(..) | Lanes::Scattered(..) => Self::fixed(linear, 0.0),
        }
    }

    /// The function of row `n` alone.
    #[inline(always)]
    pub(super) fn at(self, n: usize) -> Self {
        Self { values: &[], same: self.value(n), ..self }
    }

    #[inline(always)]
    fn value(self, n: usize) -> f32 {
        self.values.get(n).copied().unwrap_or(self.same)
    }

    /// The function in row `n`, as a factor and a term.
    #[inline(always)]
    pub(super) fn scale(self, n: usize) -> (f32, f32) {
        let bits = self.value(n).to_bits();
        let of = |(taken, other): (u32, u32)| f32::from_bits(bits & taken ^ other);
        (of(self.factor), of(self.term))
    }
}

/// An affine function of vectors, with a factor if `T`, and the terms `P`.
struct Function<S: Simd, C, const T: bool, const P: u8> {
    constants: C,
    sign: S::f32s,
    term: S::f32s,
}

impl<S: Simd, C: Constants<S>, const T: bool, const P: u8> Function<S, C, T, P> {
    #[inline(always)]
    fn apply(&self, simd: S, x: S::f32s, factor: S::f32s, term: S::f32s) -> S::f32s {
        let mut x = self.constants.apply(simd, x);
        if T {
            x = simd.mul_f32s(x, factor);
        }
        match P {
            ROW_TERM => simd.add_f32s(x, self.term),
            EACH_TERM => arch::mul_add(simd, term, self.sign, x),
            _ => x,
        }
    }
}

/// Vector functions whose other operands are constant in a row.
pub(super) trait Constants<S: Simd>: Copy {
    /// From linear functions, as factors and terms.
    fn of(simd: S, scales: [(f32, f32); CONSTANTS]) -> Self;

    fn apply(self, simd: S, x: S::f32s) -> S::f32s;
}

/// Successive linear functions, as factors and terms. In each, the factor is 1 or -1, or the term is -0.0.
#[derive(Clone, Copy)]
pub(super) struct Steps<S: Simd>([(S::f32s, S::f32s); CONSTANTS]);

impl<S: Simd> Constants<S> for Steps<S> {
    #[inline(always)]
    fn of(simd: S, scales: [(f32, f32); CONSTANTS]) -> Self {
        Self(scales.map(|(factor, term)| (simd.splat_f32s(factor), simd.splat_f32s(term))))
    }

    #[inline(always)]
    fn apply(self, simd: S, x: S::f32s) -> S::f32s {
        self.0.into_iter().fold(x, |x, (factor, term)| arch::mul_add(simd, x, factor, term))
    }
}

/// Adds two terms, then multiplies by a factor.
#[derive(Clone, Copy)]
pub(super) struct Shift<S: Simd> {
    terms: [S::f32s; 2],
    factor: S::f32s,
}

impl<S: Simd> Constants<S> for Shift<S> {
    /// From linear functions in which no product precedes a sum.
    #[inline(always)]
    fn of(simd: S, [a, b, c]: [(f32, f32); CONSTANTS]) -> Self {
        let terms = [simd.splat_f32s(a.1), simd.splat_f32s(b.1)];
        Self { terms, factor: simd.splat_f32s(a.0 * b.0 * c.0) }
    }

    #[inline(always)]
    fn apply(self, simd: S, x: S::f32s) -> S::f32s {
        let [a, b] = self.terms;
        simd.mul_f32s(simd.add_f32s(simd.add_f32s(x, a), b), self.factor)
    }
}

/// Multiplies a value that all points share by factors and adds terms.
pub(super) fn affine_points(out: &mut [f32], value: f32, factors: Row<'_, f32>, (terms, sign): (Row<'_, f32>, f32)) {
    for (point, out) in out.iter_mut().enumerate() {
        let (factor, term) = (factors.at(point).unwrap_or(0.0), terms.at(point).unwrap_or(0.0));
        *out = value * factor + term * sign;
    }
}
