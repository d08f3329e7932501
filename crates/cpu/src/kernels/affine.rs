//! Affine passes over the points of a row.

use super::arch;
use super::chain::Block;
use super::lanes::{Lanes, Row};
use super::step::{CONSTANTS, Linear};
use pulp::Simd;

/// An affine pass over rows. Factors and terms are read only where the pass has them.
#[derive(Clone, Copy)]
pub(super) struct AffineRows<'a> {
    pub values: Spaced<'a>,
    pub constants: [RowConstant<'a>; CONSTANTS],
    pub factors: Option<Spaced<'a>>,
    pub sign: f32,
    pub terms: Option<Spaced<'a>>,
    /// True if [`Affine::is_shift`](super::step::Affine::is_shift) holds.
    pub is_shift: bool,
}

impl AffineRows<'_> {
    /// Applies the constants, then factors, then terms. Rounds as separate steps would. Rows of `out` are `stride` apart.
    #[inline(always)]
    pub(super) fn compute<S: Simd>(
        self,
        simd: S,
        out: &mut [f32],
        (rows, stride): (usize, usize),
        store: impl Fn(&mut S::f32s, S::f32s) + Copy,
    ) {
        match self.is_shift {
            true => self.with_constants::<S, Shift<S>>(simd, out, (rows, stride), store),
            false => self.with_constants::<S, Steps<S>>(simd, out, (rows, stride), store),
        }
    }

    #[inline(always)]
    fn with_constants<S: Simd, C: Constants<S>>(
        self,
        simd: S,
        out: &mut [f32],
        size: (usize, usize),
        store: impl Fn(&mut S::f32s, S::f32s) + Copy,
    ) {
        match (self.factors, self.terms) {
            (None, None) => self.each_row::<S, C, false, false>(simd, out, size, [self.values; 2], store),
            (None, Some(terms)) => self.each_row::<S, C, false, true>(simd, out, size, [self.values, terms], store),
            (Some(factors), None) => self.each_row::<S, C, true, false>(simd, out, size, [factors, self.values], store),
            (Some(factors), Some(terms)) => self.each_row::<S, C, true, true>(simd, out, size, [factors, terms], store),
        }
    }

    #[inline(always)]
    fn each_row<S: Simd, C: Constants<S>, const T: bool, const P: bool>(
        self,
        simd: S,
        out: &mut [f32],
        (rows, stride): (usize, usize),
        [factors, terms]: [Spaced<'_>; 2],
        store: impl Fn(&mut S::f32s, S::f32s),
    ) {
        let sign = simd.splat_f32s(self.sign);
        for (n, out) in out.chunks_mut(stride.max(1)).take(rows).enumerate() {
            let Some(out) = out.get_mut(..self.values.points) else { continue };
            let constants = C::of(simd, self.constants.map(|constant| constant.scale(n)));
            let function = Function::<S, C, T, P> { constants, sign };
            let (out, rest) = S::as_mut_simd_f32s(out);
            let [(values, x), (factors, factor), (terms, term)] =
                [self.values, factors, terms].map(|rows| S::as_simd_f32s(rows.row(n)));
            for (((out, &x), &factor), &term) in out.iter_mut().zip(values).zip(factors).zip(terms) {
                store(out, function.apply(simd, x, factor, term));
            }
            if !rest.is_empty() {
                let [x, factor, term] = [x, factor, term].map(|last| simd.partial_load_f32s(last));
                simd.partial_store_f32s(rest, function.apply(simd, x, factor, term));
            }
        }
    }
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

/// An affine function of vectors, with a factor if `T` and a term if `P`.
struct Function<S: Simd, C, const T: bool, const P: bool> {
    constants: C,
    sign: S::f32s,
}

impl<S: Simd, C: Constants<S>, const T: bool, const P: bool> Function<S, C, T, P> {
    #[inline(always)]
    fn apply(&self, simd: S, x: S::f32s, factor: S::f32s, term: S::f32s) -> S::f32s {
        let mut x = self.constants.apply(simd, x);
        if T {
            x = simd.mul_f32s(x, factor);
        }
        if P {
            x = arch::mul_add(simd, term, self.sign, x);
        }
        x
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
