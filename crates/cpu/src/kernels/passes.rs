//! Runs a pass of a chain over a block.

use super::affine::{AffineRows, RowConstant, RowsOut, Spaced, Terms, affine_points};
use super::chain::Block;
use super::lanes::{Lanes, ROWS, Row};
use super::step::{Affine, CONSTANTS, ChainStep, Linear, Pass};
use super::stream::Stream;
use super::vectors::Instructions;
use pulp::{NullaryFnOnce, Simd, WithSimd};
use rewire_graph::pointwise::functions::{
    Arithmetic, BinaryVisitor, Comparison, Exp, Sigmoid, Silu, Tanh, Unary, UnaryVisitor,
};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use std::marker::PhantomData;

/// Points that are copied to apply a function in place.
const COPIED: usize = 64;

/// The input and output of a pass over a block.
pub(super) struct Rows<'a, 's> {
    pub out: &'s mut [f32],
    pub stride: usize,
    pub value: Lanes<'a, f32>,
    /// The block within `value`.
    pub from: Block,
    /// The block within the operands.
    pub block: Block,
    pub operands: &'a [Lanes<'a, f32>],
}

impl<'a> Rows<'a, '_> {
    #[inline(always)]
    fn iter(&mut self) -> impl Iterator<Item = (usize, &mut [f32], Row<'a, f32>)> {
        let (value, from) = (self.value, self.from);
        let rows = self.out.chunks_mut(self.stride.max(1)).take(from.rows).enumerate();
        rows.filter_map(move |(n, row)| Some((n, row.get_mut(..from.points)?, from.row(value, n))))
    }

    /// True if the input has a value per point.
    #[inline(always)]
    fn is_each(&self) -> bool {
        !matches!(self.value, Lanes::Same(_) | Lanes::Rows(_))
    }

    /// An operand.
    #[inline(always)]
    fn operand(&self, position: u16) -> Lanes<'a, f32> {
        self.operands.get(usize::from(position)).copied().unwrap_or(Lanes::Each(&[]))
    }

    /// Merges the rows to one, if neither the input nor an operand has per-row values.
    #[inline(always)]
    pub(super) fn flat(self, pass: Pass) -> Self {
        let is_flat = self.stride == self.from.points && self.value.is_flat();
        match (self.from.flat(), self.block.flat()) {
            (Some(from), Some(block)) if is_flat && pass.all(|operand| self.operand(operand).is_flat()) => {
                Self { stride: from.points, from, block, ..self }
            }
            _ => self,
        }
    }

    /// Runs a pass.
    #[inline(always)]
    pub(super) fn advance<S: Simd>(self, simd: S, pass: Pass) {
        let value = (self.value, self.from);
        let (op, a, b) = match pass {
            Pass::Affine(affine) => {
                return self.affine(
                    simd,
                    affine,
                    #[inline(always)]
                    |out, value| *out = value,
                );
            }
            Pass::ChainStep(ChainStep::Unary(op)) => return self.map(simd, op),
            Pass::ChainStep(ChainStep::Choose { comparison, a, b, side, other }) => {
                return self.choose(simd, comparison, [a, b, other], side);
            }
            Pass::ChainStep(ChainStep::Both(op)) => (op, value, value),
            Pass::ChainStep(ChainStep::Left(op, other)) => (op, value, (self.operand(other), self.block)),
            Pass::ChainStep(ChainStep::Right(op, other)) => (op, (self.operand(other), self.block), value),
        };
        self.zip(simd, op, a, b);
    }

    /// Copies the values.
    #[inline(always)]
    pub(super) fn copy(mut self) {
        for (_, out, value) in self.iter() {
            match value {
                Row::Same(value) => out.fill(value),
                Row::Each(values) if values.len() == out.len() => out.copy_from_slice(values),
                Row::Each(_) => {}
            }
        }
    }

    /// Runs a pass with non-temporal stores. Returns false, without a write, if the pass is not affine or rows are not whole
    /// vectors.
    #[inline(always)]
    pub(super) fn stream<S: Simd>(self, simd: S, pass: Pass, stream: &Stream<'_>) -> bool {
        let rows_fit = self.stride.is_multiple_of(S::F32_LANES) && self.from.points.is_multiple_of(S::F32_LANES);
        match (pass, stream.vectors::<S>(self.out)) {
            (Pass::Affine(affine), Some(vectors)) if rows_fit && self.is_each() && affine.then.is_none() => {
                self.affine(
                    simd,
                    affine,
                    #[inline(always)]
                    |out, value| vectors.store(out, value),
                );
                true
            }
            _ => false,
        }
    }

    /// Runs an affine pass. `store` stores vectors.
    #[inline(always)]
    fn affine<S: Simd>(self, simd: S, affine: Affine, store: impl Fn(&mut S::f32s, S::f32s) + Copy) {
        let Affine { constants: _, times, plus, then } = affine;
        let (constants, is_shift) = (self.constants(affine), affine.is_shift());
        let (rows, stride, block) = (self.from.rows, self.stride, self.block);
        let factors = times.map(|position| self.operand(position));
        let terms = plus.map(|(sign, position)| (sign, self.operand(position)));
        let spaced_factors = factors.map_or(Some(None), |factors| block.spaced(factors).map(Some));
        let all = match (self.from.spaced(self.value), spaced_factors, Terms::of(terms, block)) {
            (Some(values), Some(factors), Some(terms)) => {
                Some(AffineRows { values, constants, factors, terms, is_shift })
            }
            _ => None,
        };
        // Operands whose rows are not evenly spaced are bound row by row.
        let size = if all.is_some() { rows } else { 1 };
        for n in (0..rows).step_by(size.max(1)) {
            let Some(out) = self.out.get_mut(n * stride..) else { return };
            let row = |lanes: Lanes<'a, f32>| block.row(lanes, n);
            let part = match (all, self.from.row(self.value, n)) {
                (Some(all), _) => all,
                (None, Row::Each(values)) => AffineRows {
                    values: Spaced::one(Row::Each(values), values.len()),
                    constants: constants.map(|constant| constant.at(n)),
                    factors: factors.map(|factors| Spaced::one(row(factors), values.len())),
                    terms: terms.map_or(Terms::None, |(sign, terms)| Terms::one(sign, row(terms), values.len())),
                    is_shift,
                },
                (None, Row::Same(value)) => {
                    let Some(out) = out.get_mut(..self.from.points) else { return };
                    let scaled = constants.iter().fold(value, |x, constant| {
                        let (factor, term) = constant.scale(n);
                        x * factor + term
                    });
                    let factors = factors.map_or(Row::Same(1.0), row);
                    let (sign, terms) = terms.map_or((1.0, Row::Same(-0.0)), |(sign, terms)| (sign, row(terms)));
                    affine_points(out, scaled, factors, (terms, sign));
                    let Some(op) = then else { continue };
                    for out in out.chunks_mut(COPIED) {
                        let mut values = [0.0; COPIED];
                        let values = &mut values[..out.len()];
                        values.copy_from_slice(out);
                        curve(op, Mapped { simd, out, row: Row::Each(values) });
                    }
                    continue;
                }
            };
            let to = RowsOut { out, rows: size, stride };
            match then {
                None => simd.vectorize(AffineOnly { simd, part, to, store }),
                Some(op) => curve(op, AffineThen { simd, part, to }),
            }
        }
    }

    /// The constants of a pass.
    #[inline(always)]
    pub(super) fn constants(&self, affine: Affine) -> [RowConstant<'a>; CONSTANTS] {
        affine.constants.map(|constant| self.constant(constant))
    }

    /// A linear function that is the same for all points of a row.
    #[inline(always)]
    fn constant(&self, constant: Option<(Linear, u16)>) -> RowConstant<'a> {
        constant.map_or(RowConstant::NONE, |(linear, other)| RowConstant::of(linear, self.operand(other), self.block))
    }

    /// Applies a unary function. The row loop is not duplicated per function, to limit code size.
    #[inline(always)]
    fn map<S: Simd>(mut self, simd: S, op: UnaryOp) {
        for (_, out, row) in self.iter() {
            op.visit(Mapped { simd, out, row });
        }
    }

    /// Applies a binary function.
    #[inline(always)]
    fn zip<S: Simd>(
        self,
        simd: S,
        op: BinaryOp,
        (a, a_from): (Lanes<'a, f32>, Block),
        (b, b_from): (Lanes<'a, f32>, Block),
    ) {
        let points = self.from.points;
        let rows = self.out.chunks_mut(self.stride.max(1)).take(self.from.rows).enumerate();
        for (n, out) in rows {
            let Some(out) = out.get_mut(..points) else { continue };
            op.visit(Zipped { simd, out, a: a_from.row(a, n), b: b_from.row(b, n) });
        }
    }

    /// Selects the input where the comparison of the first two operands equals `side`, and the third operand elsewhere.
    #[inline(always)]
    fn choose<S: Simd>(mut self, simd: S, comparison: BinaryOp, [a, b, other]: [u16; 3], side: bool) {
        let (a, b, others, block) = (self.operand(a), self.operand(b), self.operand(other), self.block);
        for (n, out, value) in self.iter() {
            let other = block.row(others, n);
            let (yes, no) = if side { (value, other) } else { (other, value) };
            comparison.visit(Chosen { simd, out, a: block.row(a, n), b: block.row(b, n), yes, no });
        }
    }
}

/// The steps of a chain for one row of up to [`ROWS`] points, whose values between steps need no other memory.
pub(super) struct Line<'a, 's> {
    pub operands: &'a [Lanes<'a, f32>],
    pub steps: &'a [Pass],
    pub out: &'s mut [f32],
}

impl WithSimd for Line<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { operands, steps, out } = self;
        let (points, mut between) = (out.len(), [0.0; ROWS]);
        let spare = &mut between[..points.min(ROWS)];
        // The last step writes to `out`.
        let (mut to, mut from) = if steps.len().is_multiple_of(2) { (spare, out) } else { (out, spare) };
        let operand = |position: u16| match operands.get(usize::from(position)) {
            Some(lanes) => lanes.row(0, points),
            None => Row::Each(&[]),
        };
        for (n, &pass) in steps.iter().enumerate() {
            let (value, out) = (if n == 0 { operand(0) } else { Row::Each(&*from) }, &mut *to);
            match pass {
                Pass::Affine(_) => debug_assert!(false, "steps are functions"),
                Pass::ChainStep(ChainStep::Unary(op)) => op.visit(Mapped { simd, out, row: value }),
                Pass::ChainStep(ChainStep::Both(op)) => op.visit(Zipped { simd, out, a: value, b: value }),
                Pass::ChainStep(ChainStep::Left(op, b)) => op.visit(Zipped { simd, out, a: value, b: operand(b) }),
                Pass::ChainStep(ChainStep::Right(op, a)) => op.visit(Zipped { simd, out, a: operand(a), b: value }),
                Pass::ChainStep(ChainStep::Choose { comparison, a, b, side, other }) => {
                    let (yes, no) = if side { (value, operand(other)) } else { (operand(other), value) };
                    comparison.visit(Chosen { simd, out, a: operand(a), b: operand(b), yes, no });
                }
            }
            std::mem::swap(&mut to, &mut from);
        }
    }
}

/// Applies a unary function to a row.
struct Mapped<'s, S> {
    simd: S,
    out: &'s mut [f32],
    row: Row<'s, f32>,
}

impl<S: Simd> UnaryVisitor for Mapped<'_, S> {
    type Output = ();

    #[inline(always)]
    fn visit<F: Unary>(self) {
        self.simd.vectorize(With::<_, F>(self, PhantomData));
    }
}

impl<S: Simd, F: Unary> NullaryFnOnce for With<Mapped<'_, S>, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Mapped { simd, out, row } = self.0;
        let (v, row) = (Instructions(simd), RowVectors::of(simd, row, out.len()));
        let (out, rest) = S::as_mut_simd_f32s(out);
        for (n, out) in out.iter_mut().enumerate() {
            *out = F::lanes(v, row.at(n));
        }
        if !rest.is_empty() {
            simd.partial_store_f32s(rest, F::lanes(v, row.last(simd)));
        }
    }
}

/// Work with one function `F`. [`Simd::vectorize`] compiles it apart: all functions together would need megabytes of a thread's
/// stack in debug builds.
struct With<W, F>(W, PhantomData<F>);

/// An affine pass.
struct AffineOnly<'a, 's, S, F> {
    simd: S,
    part: AffineRows<'a>,
    to: RowsOut<'s>,
    store: F,
}

impl<S: Simd, F: Fn(&mut S::f32s, S::f32s) + Copy> NullaryFnOnce for AffineOnly<'_, '_, S, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.part.compute(self.simd, self.to, self.store);
    }
}

/// An affine pass, then a unary function.
struct AffineThen<'a, 's, S> {
    simd: S,
    part: AffineRows<'a>,
    to: RowsOut<'s>,
}

impl<S: Simd, F: Unary> NullaryFnOnce for With<AffineThen<'_, '_, S>, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let AffineThen { simd, part, to } = self.0;
        let v = Instructions(simd);
        part.compute_then(
            simd,
            to,
            #[inline(always)]
            |x| F::lanes(v, x),
        );
    }
}

/// Calls a visitor with one of [`CURVES`](super::step::CURVES).
#[inline(always)]
fn curve<V: UnaryVisitor<Output = ()>>(op: UnaryOp, visitor: V) {
    match op {
        UnaryOp::Exp => visitor.visit::<Exp>(),
        UnaryOp::Sigmoid => visitor.visit::<Sigmoid>(),
        UnaryOp::Silu => visitor.visit::<Silu>(),
        UnaryOp::Tanh => visitor.visit::<Tanh>(),
        _ => debug_assert!(false, "{op:?} is a pass of its own"),
    }
}

impl<S: Simd> UnaryVisitor for AffineThen<'_, '_, S> {
    type Output = ();

    #[inline(always)]
    fn visit<F: Unary>(self) {
        self.simd.vectorize(With::<_, F>(self, PhantomData));
    }
}

/// The vectors of a row's values.
struct RowVectors<'s, S: Simd> {
    each: &'s [S::f32s],
    /// The points after the last whole vector.
    last: &'s [f32],
    /// The value of a row without a value per point.
    same: S::f32s,
}

impl<'s, S: Simd> RowVectors<'s, S> {
    #[inline(always)]
    fn of(simd: S, row: Row<'s, f32>, points: usize) -> Self {
        match row {
            Row::Same(value) => Self { each: &[], last: &[], same: simd.splat_f32s(value) },
            Row::Each(values) => {
                debug_assert_eq!(values.len(), points, "a row has all points");
                let (each, last) = S::as_simd_f32s(values);
                Self { each, last, same: simd.splat_f32s(0.0) }
            }
        }
    }

    #[inline(always)]
    fn at(&self, n: usize) -> S::f32s {
        self.each.get(n).copied().unwrap_or(self.same)
    }

    #[inline(always)]
    fn last(&self, simd: S) -> S::f32s {
        if self.last.is_empty() { self.same } else { simd.partial_load_f32s(self.last) }
    }
}

/// Applies a binary function to a row.
struct Zipped<'s, S> {
    simd: S,
    out: &'s mut [f32],
    a: Row<'s, f32>,
    b: Row<'s, f32>,
}

impl<S: Simd> BinaryVisitor for Zipped<'_, S> {
    type Output = ();

    #[inline(always)]
    fn arithmetic<F: Arithmetic>(self) {
        self.simd.vectorize(With::<_, F>(self, PhantomData));
    }

    fn comparison<F: Comparison>(self) {}
}

impl<S: Simd, F: Arithmetic> NullaryFnOnce for With<Zipped<'_, S>, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Zipped { simd, out, a, b } = self.0;
        let (v, a, b) = (Instructions(simd), RowVectors::of(simd, a, out.len()), RowVectors::of(simd, b, out.len()));
        let (out, rest) = S::as_mut_simd_f32s(out);
        for (n, out) in out.iter_mut().enumerate() {
            *out = F::lanes(v, a.at(n), b.at(n));
        }
        if !rest.is_empty() {
            simd.partial_store_f32s(rest, F::lanes(v, a.last(simd), b.last(simd)));
        }
    }
}

/// Selects `yes` where a comparison of `a` and `b` is true, and `no` elsewhere.
struct Chosen<'s, S> {
    simd: S,
    out: &'s mut [f32],
    a: Row<'s, f32>,
    b: Row<'s, f32>,
    yes: Row<'s, f32>,
    no: Row<'s, f32>,
}

impl<S: Simd> BinaryVisitor for Chosen<'_, S> {
    type Output = ();

    fn arithmetic<F: Arithmetic>(self) {}

    #[inline(always)]
    fn comparison<F: Comparison>(self) {
        self.simd.vectorize(With::<_, F>(self, PhantomData));
    }
}

impl<S: Simd, F: Comparison> NullaryFnOnce for With<Chosen<'_, S>, F> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Chosen { simd, out, a, b, yes, no } = self.0;
        let (v, a, b) = (Instructions(simd), RowVectors::of(simd, a, out.len()), RowVectors::of(simd, b, out.len()));
        let (yes, no) = (RowVectors::of(simd, yes, out.len()), RowVectors::of(simd, no, out.len()));
        let (out, rest) = S::as_mut_simd_f32s(out);
        for (n, out) in out.iter_mut().enumerate() {
            *out = simd.select_f32s(F::mask(v, a.at(n), b.at(n)), yes.at(n), no.at(n));
        }
        if !rest.is_empty() {
            let (a, b, yes, no) = (a.last(simd), b.last(simd), yes.last(simd), no.last(simd));
            simd.partial_store_f32s(rest, simd.select_f32s(F::mask(v, a, b), yes, no));
        }
    }
}
