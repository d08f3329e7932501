//! Affine passes over the points of a row.

use super::arch;
use super::chain::Block;
use super::lanes::{Lanes, Row};
use super::step::{CONSTANTS, Linear};
use pulp::Simd;

/// The operands of an affine pass for points of a row.
#[derive(Clone, Copy)]
pub(super) struct AffineRow<'a> {
    pub factors: Row<'a, f32>,
    pub sign: f32,
    pub terms: Row<'a, f32>,
}

impl AffineRow<'_> {
    #[inline(always)]
    pub(super) fn compute_each<S: Simd>(
        self,
        simd: S,
        out: &mut [f32],
        values: &[f32],
        constants: impl Constants<S>,
        (times, plus): (bool, bool),
        store: impl Fn(&mut S::f32s, S::f32s) + Copy,
    ) {
        match (times, plus) {
            (false, false) => self.compute::<S, _, false, false>(simd, out, values, constants, store),
            (false, true) => self.compute::<S, _, false, true>(simd, out, values, constants, store),
            (true, false) => self.compute::<S, _, true, false>(simd, out, values, constants, store),
            (true, true) => self.compute::<S, _, true, true>(simd, out, values, constants, store),
        }
    }

    /// Applies the constants, then per-point factors if `T`, then per-point terms if `P`. Rounds as separate steps would.
    #[inline(always)]
    fn compute<S: Simd, C: Constants<S>, const T: bool, const P: bool>(
        self,
        simd: S,
        out: &mut [f32],
        values: &[f32],
        constants: C,
        store: impl Fn(&mut S::f32s, S::f32s),
    ) {
        let sign = simd.splat_f32s(self.sign);
        let (factors, terms) = (each(self.factors, T, values), each(self.terms, P, values));
        let function = Function::<S, C, T, P> { constants, sign };
        let (out, rest) = S::as_mut_simd_f32s(out);
        let ((values, x), (factors, factor)) = (S::as_simd_f32s(values), S::as_simd_f32s(factors));
        let (terms, term) = S::as_simd_f32s(terms);
        for (((out, &x), &factor), &term) in out.iter_mut().zip(values).zip(factors).zip(terms) {
            store(out, function.apply(simd, x, factor, term));
        }
        if !rest.is_empty() {
            let (x, factor) = (simd.partial_load_f32s(x), simd.partial_load_f32s(factor));
            let term = simd.partial_load_f32s(term);
            simd.partial_store_f32s(rest, function.apply(simd, x, factor, term));
        }
    }

    /// As [`AffineRow::compute_each`], for a value that all points share.
    pub(super) fn compute_same(self, out: &mut [f32], value: f32, scales: [(f32, f32); CONSTANTS]) {
        let value = scales.iter().fold(value, |x, (factor, term)| x * factor + term);
        for (point, out) in out.iter_mut().enumerate() {
            let (factor, term) = (self.factors.at(point).unwrap_or(0.0), self.terms.at(point).unwrap_or(0.0));
            *out = value * factor + term * self.sign;
        }
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
    fn apply(self, simd: S, x: S::f32s) -> S::f32s;
}

/// Successive linear functions, as factors and terms. In each, the factor is 1 or -1, or the term is -0.0.
#[derive(Clone, Copy)]
pub(super) struct Steps<S: Simd>([(S::f32s, S::f32s); CONSTANTS]);

impl<S: Simd> Steps<S> {
    #[inline(always)]
    pub(super) fn of(simd: S, [a, b, c]: [(f32, f32); CONSTANTS]) -> Self {
        let splat = |(factor, term): (f32, f32)| (simd.splat_f32s(factor), simd.splat_f32s(term));
        Self([splat(a), splat(b), splat(c)])
    }
}

impl<S: Simd> Constants<S> for Steps<S> {
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

impl<S: Simd> Shift<S> {
    /// From linear functions in which no product precedes a sum.
    #[inline(always)]
    pub(super) fn of(simd: S, [a, b, c]: [(f32, f32); CONSTANTS]) -> Self {
        let terms = [simd.splat_f32s(a.1), simd.splat_f32s(b.1)];
        Self { terms, factor: simd.splat_f32s(a.0 * b.0 * c.0) }
    }

    #[inline(always)]
    pub(super) fn shifted(self, simd: S, x: S::f32s) -> S::f32s {
        self.apply(simd, x)
    }
}

impl<S: Simd> Constants<S> for Shift<S> {
    #[inline(always)]
    fn apply(self, simd: S, x: S::f32s) -> S::f32s {
        let [a, b] = self.terms;
        simd.mul_f32s(simd.add_f32s(simd.add_f32s(x, a), b), self.factor)
    }
}

/// A linear function in row `n`, as a factor and a term.
#[inline(always)]
pub(super) fn scale((linear, others): (Linear, Lanes<'_, f32>), block: Block, n: usize) -> (f32, f32) {
    let other = match block.row(others, n) {
        Row::Same(other) => other,
        Row::Each(_) => 0.0,
    };
    match linear {
        Linear::Plus => (1.0, other),
        Linear::Minus => (1.0, -other),
        Linear::From => (-1.0, other),
        Linear::Times => (other, -0.0),
    }
}

/// The per-point values of an operand; `others` if they are not read.
#[inline(always)]
fn each<'a>(row: Row<'a, f32>, is_read: bool, others: &'a [f32]) -> &'a [f32] {
    match row {
        Row::Each(values) if is_read => values,
        _ if is_read => &[],
        _ => others,
    }
}
