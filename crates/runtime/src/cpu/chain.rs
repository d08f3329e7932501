//! Functions of floats one after the other, each a pass over a tile that stays in the cache.

use super::elementary as e;
use super::lanes::{Grid, Lanes, Row};
use pulp::{Arch, Simd, WithSimd};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use std::convert::Infallible;

/// A function of the float that the steps before it made. `A` names other floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step<A> {
    Unary(UnaryOp),
    /// With itself.
    Both(BinaryOp),
    /// With the right operand.
    Left(BinaryOp, A),
    /// With the left operand.
    Right(BinaryOp, A),
    /// The float where a comparison of two others has this truth value, elsewhere a third.
    Choose {
        comparison: BinaryOp,
        a: A,
        b: A,
        side: bool,
        other: A,
    },
}

impl<A: Copy> Step<A> {
    /// The same function of other operands.
    #[inline(always)]
    pub(super) fn map<B>(self, mut to: impl FnMut(A) -> B) -> Step<B> {
        let Ok(step) = self.try_map(|a| Ok::<B, Infallible>(to(a)));
        step
    }
}

/// True for functions of two floats that give a float.
pub(super) fn is_arithmetic(op: BinaryOp) -> bool {
    use BinaryOp::{Add, Div, Max, Min, Mod, Mul, Pow, Sub};
    matches!(op, Add | Sub | Mul | Div | Mod | Pow | Min | Max)
}

/// True for comparisons.
pub(super) fn is_comparison(op: BinaryOp) -> bool {
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
    matches!(op, Eq | Ne | Lt | Le | Gt | Ge)
}

/// Takes a step from `value` to rows of `out`, `stride` apart, for all points of a grid.
pub(super) fn advance(
    arch: Arch,
    (out, stride): (&mut [f32], usize),
    grid: Grid,
    value: Lanes<'_, f32>,
    step: Step<Lanes<'_, f32>>,
) {
    let mut joined = stride == grid.points && value.is_flat();
    step.map(|lanes| joined &= lanes.is_flat());
    let (grid, stride) = if joined { (grid.flat(), grid.len()) } else { (grid, stride) };
    let rows = Rows { out, stride: stride.max(1), grid, value };
    match step {
        Step::Unary(op) => arch.dispatch(Unary { rows, op }),
        Step::Both(op) => arch.dispatch(Both { rows, op }),
        Step::Left(op, other) => arch.dispatch(Left { rows, op, other }),
        Step::Right(op, other) => arch.dispatch(Right { rows, op, other }),
        Step::Choose { comparison, a, b, side, other } => {
            arch.dispatch(Choose { rows, comparison, a, b, side, other });
        }
    }
}

impl<A: Copy> Step<A> {
    /// [`Step::map`] with a function that may fail.
    #[inline(always)]
    pub(super) fn try_map<B, E>(self, mut to: impl FnMut(A) -> Result<B, E>) -> Result<Step<B>, E> {
        Ok(match self {
            Self::Unary(op) => Step::Unary(op),
            Self::Both(op) => Step::Both(op),
            Self::Left(op, a) => Step::Left(op, to(a)?),
            Self::Right(op, a) => Step::Right(op, to(a)?),
            Self::Choose { comparison, a, b, side, other } => {
                Step::Choose { comparison, a: to(a)?, b: to(b)?, side, other: to(other)? }
            }
        })
    }
}

/// Values, and the rows that functions of them go to.
struct Rows<'a, 's> {
    out: &'s mut [f32],
    stride: usize,
    grid: Grid,
    value: Lanes<'a, f32>,
}

impl<'a> Rows<'a, '_> {
    #[inline(always)]
    fn iter(&mut self) -> impl Iterator<Item = (usize, &mut [f32], Row<'a, f32>)> {
        let (points, value) = (self.grid.points, self.value);
        let rows = self.out.chunks_mut(self.stride).take(self.grid.rows).enumerate();
        rows.filter_map(move |(n, row)| Some((n, row.get_mut(..points)?, value.row(n, points))))
    }

    /// A function of every value.
    #[inline(always)]
    fn map<S: Simd>(mut self, simd: S, function: impl Fn(S::f32s) -> S::f32s + Copy) {
        for (_, out, value) in self.iter() {
            map(simd, out, value, function);
        }
    }

    /// A function of every value by itself, as a loop that becomes vector code where possible.
    #[inline(always)]
    fn each(mut self, function: impl Fn(f32) -> f32) {
        for (_, out, value) in self.iter() {
            match value {
                Row::Same(value) => out.fill(function(value)),
                Row::Each(values) => out.iter_mut().zip(values).for_each(|(out, &x)| *out = function(x)),
            }
        }
    }

    /// A function of every value and another one.
    #[inline(always)]
    fn zip<S: Simd>(mut self, simd: S, others: Lanes<'_, f32>, function: impl Fn(S::f32s, S::f32s) -> S::f32s + Copy) {
        let points = self.grid.points;
        for (n, out, value) in self.iter() {
            match (value, others.row(n, points)) {
                (value, Row::Same(other)) => {
                    let other = simd.splat_f32s(other);
                    map(
                        simd,
                        out,
                        value,
                        #[inline(always)]
                        |x| function(x, other),
                    );
                }
                (Row::Same(x), others) => {
                    let x = simd.splat_f32s(x);
                    map(
                        simd,
                        out,
                        others,
                        #[inline(always)]
                        |other| function(x, other),
                    );
                }
                (Row::Each(values), Row::Each(others)) => {
                    let (out, rest) = S::as_mut_simd_f32s(out);
                    let ((values, x), (others, other)) = (S::as_simd_f32s(values), S::as_simd_f32s(others));
                    for ((out, &x), &other) in out.iter_mut().zip(values).zip(others) {
                        *out = function(x, other);
                    }
                    if !rest.is_empty() {
                        let (x, other) = (simd.partial_load_f32s(x), simd.partial_load_f32s(other));
                        simd.partial_store_f32s(rest, function(x, other));
                    }
                }
            }
        }
    }

    /// A function of every value and another one, without vectors.
    #[inline(always)]
    fn zip_each(mut self, others: Lanes<'_, f32>, function: impl Fn(f32, f32) -> f32) {
        let points = self.grid.points;
        for (n, out, value) in self.iter() {
            let others = others.row(n, points);
            for (point, out) in out.iter_mut().enumerate() {
                *out = function(value.at(point).unwrap_or(0.0), others.at(point).unwrap_or(0.0));
            }
        }
    }
}

/// A function of every value of a row.
#[inline(always)]
fn map<S: Simd>(simd: S, out: &mut [f32], values: Row<'_, f32>, function: impl Fn(S::f32s) -> S::f32s) {
    let values = match values {
        Row::Same(value) => &[value; SAME][..],
        Row::Each(values) => values,
    };
    for out in out.chunks_mut(values.len().max(1)) {
        let ((vectors, rest), (values, last)) = (S::as_mut_simd_f32s(out), S::as_simd_f32s(values));
        for (out, &x) in vectors.iter_mut().zip(values) {
            *out = function(x);
        }
        if !rest.is_empty() {
            let x = match values.get(vectors.len()) {
                Some(&x) => x,
                None => simd.partial_load_f32s(last),
            };
            simd.partial_store_f32s(rest, function(x));
        }
    }
}

/// Copies of a value that is the same in a row.
const SAME: usize = 64;

struct Unary<'a, 's> {
    rows: Rows<'a, 's>,
    op: UnaryOp,
}

impl WithSimd for Unary<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        macro_rules! map {
            ($x:ident => $value:expr) => {
                self.rows.map(
                    simd,
                    #[inline(always)]
                    |$x: S::f32s| $value,
                )
            };
        }
        match self.op {
            UnaryOp::Neg => map!(x => simd.neg_f32s(x)),
            UnaryOp::Abs => map!(x => simd.abs_f32s(x)),
            UnaryOp::Exp => map!(x => e::exp(simd, x)),
            UnaryOp::Log => map!(x => e::log(simd, x)),
            UnaryOp::Sqrt => map!(x => simd.sqrt_f32s(x)),
            UnaryOp::Rsqrt => map!(x => simd.div_f32s(simd.splat_f32s(1.0), simd.sqrt_f32s(x))),
            UnaryOp::Sigmoid => map!(x => e::sigmoid(simd, x)),
            UnaryOp::Silu => map!(x => e::silu(simd, x)),
            UnaryOp::Relu => map!(x => {
                let zero = simd.splat_f32s(0.0);
                simd.select_f32s(simd.less_than_f32s(x, zero), zero, x)
            }),
            UnaryOp::Tanh => map!(x => e::tanh(simd, x)),
            UnaryOp::Erf => map!(x => e::erf(simd, x)),
            UnaryOp::Sin => self.rows.each(f32::sin),
            UnaryOp::Cos => self.rows.each(f32::cos),
            UnaryOp::Floor => self.rows.each(f32::floor),
            UnaryOp::Ceil => self.rows.each(f32::ceil),
            UnaryOp::Trunc => self.rows.each(f32::trunc),
            UnaryOp::Round => self.rows.each(f32::round_ties_even),
            UnaryOp::Not => self.rows.each(|x| x),
        }
    }
}

/// Functions of two floats, by vectors or one by one.
macro_rules! arithmetic {
    ($op:expr, $simd:ident, $map:ident, $each:ident) => {
        match $op {
            BinaryOp::Add => $map!(a, b => $simd.add_f32s(a, b)),
            BinaryOp::Sub => $map!(a, b => $simd.sub_f32s(a, b)),
            BinaryOp::Mul => $map!(a, b => $simd.mul_f32s(a, b)),
            BinaryOp::Div => $map!(a, b => $simd.div_f32s(a, b)),
            BinaryOp::Min => $map!(a, b => $simd.select_f32s($simd.less_than_f32s(b, a), b, a)),
            BinaryOp::Max => $map!(a, b => $simd.select_f32s($simd.less_than_f32s(a, b), b, a)),
            BinaryOp::Mod => $each!(a, b => a - b * (a / b).floor()),
            BinaryOp::Pow => $each!(a, b => a.powf(b)),
            _ => $each!(a, _b => a),
        }
    };
}

struct Both<'a, 's> {
    rows: Rows<'a, 's>,
    op: BinaryOp,
}

impl WithSimd for Both<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        macro_rules! map {
            ($a:ident, $b:ident => $value:expr) => {
                self.rows.map(
                    simd,
                    #[inline(always)]
                    |$a: S::f32s| {
                        let $b = $a;
                        $value
                    },
                )
            };
        }
        macro_rules! each {
            ($a:ident, $b:ident => $value:expr) => {
                self.rows.each(|$a| {
                    let $b = $a;
                    $value
                })
            };
        }
        arithmetic!(self.op, simd, map, each);
    }
}

struct Left<'a, 's> {
    rows: Rows<'a, 's>,
    op: BinaryOp,
    other: Lanes<'a, f32>,
}

impl WithSimd for Left<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        macro_rules! map {
            ($a:ident, $b:ident => $value:expr) => {
                self.rows.zip(
                    simd,
                    self.other,
                    #[inline(always)]
                    |$a: S::f32s, $b: S::f32s| $value,
                )
            };
        }
        macro_rules! each {
            ($a:ident, $b:ident => $value:expr) => {
                self.rows.zip_each(self.other, |$a, $b| $value)
            };
        }
        arithmetic!(self.op, simd, map, each);
    }
}

struct Right<'a, 's> {
    rows: Rows<'a, 's>,
    op: BinaryOp,
    other: Lanes<'a, f32>,
}

impl WithSimd for Right<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        macro_rules! map {
            ($a:ident, $b:ident => $value:expr) => {
                self.rows.zip(
                    simd,
                    self.other,
                    #[inline(always)]
                    |$b: S::f32s, $a: S::f32s| $value,
                )
            };
        }
        macro_rules! each {
            ($a:ident, $b:ident => $value:expr) => {
                self.rows.zip_each(self.other, |$b, $a| $value)
            };
        }
        arithmetic!(self.op, simd, map, each);
    }
}

struct Choose<'a, 's> {
    rows: Rows<'a, 's>,
    comparison: BinaryOp,
    a: Lanes<'a, f32>,
    b: Lanes<'a, f32>,
    side: bool,
    other: Lanes<'a, f32>,
}

impl WithSimd for Choose<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        macro_rules! choose {
            ($a:ident, $b:ident => $holds:expr, $side:expr) => {
                self.values(
                    simd,
                    $side,
                    #[inline(always)]
                    |$a: S::f32s, $b: S::f32s| $holds,
                )
            };
        }
        let side = self.side;
        match self.comparison {
            BinaryOp::Eq => choose!(a, b => simd.equal_f32s(a, b), side),
            BinaryOp::Lt => choose!(a, b => simd.less_than_f32s(a, b), side),
            BinaryOp::Le => choose!(a, b => simd.less_than_or_equal_f32s(a, b), side),
            BinaryOp::Gt => choose!(a, b => simd.less_than_f32s(b, a), side),
            BinaryOp::Ge => choose!(a, b => simd.less_than_or_equal_f32s(b, a), side),
            _ => choose!(a, b => simd.equal_f32s(a, b), !side),
        }
    }
}

impl Choose<'_, '_> {
    #[inline(always)]
    fn values<S: Simd>(mut self, simd: S, side: bool, holds: impl Fn(S::f32s, S::f32s) -> S::m32s + Copy) {
        let points = self.rows.grid.points;
        for (n, out, value) in self.rows.iter() {
            let others = [value, self.a.row(n, points), self.b.row(n, points), self.other.row(n, points)];
            let (vectors, rest) = S::as_mut_simd_f32s(out);
            let start = vectors.len() * S::F32_LANES;
            for (n, out) in vectors.iter_mut().enumerate() {
                *out = choose(simd, others, n * S::F32_LANES, side, holds);
            }
            if !rest.is_empty() {
                simd.partial_store_f32s(rest, choose(simd, others, start, side, holds));
            }
        }
    }
}

/// The first of four rows or the last, as a condition of the two between has it, from a point on.
#[inline(always)]
fn choose<S: Simd>(
    simd: S,
    [value, a, b, other]: [Row<'_, f32>; 4],
    start: usize,
    side: bool,
    holds: impl Fn(S::f32s, S::f32s) -> S::m32s,
) -> S::f32s {
    let (value, other) = (vector(simd, value, start), vector(simd, other, start));
    let (yes, no) = if side { (value, other) } else { (other, value) };
    simd.select_f32s(holds(vector(simd, a, start), vector(simd, b, start)), yes, no)
}

/// The points of a row from `start` on; those beyond it are zero.
#[inline(always)]
fn vector<S: Simd>(simd: S, row: Row<'_, f32>, start: usize) -> S::f32s {
    match row {
        Row::Same(value) => simd.splat_f32s(value),
        Row::Each(values) => {
            let values = values.get(start..).unwrap_or(&[]);
            match S::as_simd_f32s(values).0.first() {
                Some(&vector) => vector,
                None => simd.partial_load_f32s(values),
            }
        }
    }
}
