//! Functions of floats one after the other, with the value between them in vector registers.

use super::functions as f;
use super::lanes::{Grid, Lanes, Row};
use pulp::{Arch, Simd, WithSimd};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use std::convert::Infallible;

/// Steps of a chain, at most.
pub(super) const MOST: usize = 8;
/// Vectors that are computed at once.
const BLOCK: usize = 8;

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

/// Computes a chain for all points of a grid; rows of `out` are `stride` apart.
pub(super) fn run<'a>(
    arch: Arch,
    (out, stride): (&mut [f32], usize),
    grid: Grid,
    first: Lanes<'a, f32>,
    steps: &[Step<Lanes<'a, f32>>],
) {
    let flat = |lanes: Lanes<'a, f32>| lanes.is_flat();
    let joined = stride == grid.points && flat(first) && steps.iter().all(|step| step.all(flat));
    let (grid, stride) = if joined { (grid.flat(), grid.len()) } else { (grid, stride) };
    arch.dispatch(Chain { out, stride, grid, first, steps });
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

    fn all(self, holds: impl Fn(A) -> bool) -> bool {
        let mut all = true;
        self.map(|a| all &= holds(a));
        all
    }
}

struct Chain<'a, 's> {
    out: &'s mut [f32],
    stride: usize,
    grid: Grid,
    first: Lanes<'a, f32>,
    steps: &'s [Step<Lanes<'a, f32>>],
}

impl WithSimd for Chain<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Grid { rows, points } = self.grid;
        let mut steps = [Step::Unary(UnaryOp::Neg); MOST];
        for (row, out) in self.out.chunks_mut(self.stride.max(1)).take(rows).enumerate() {
            let Some(out) = out.get_mut(..points) else { return };
            let first = self.first.row(row, points);
            for (to, step) in steps.iter_mut().zip(self.steps) {
                *to = step.map(|lanes| lanes.row(row, points));
            }
            evaluate(simd, out, first, &steps[..self.steps.len().min(MOST)]);
        }
    }
}

#[inline(always)]
fn evaluate<S: Simd>(simd: S, out: &mut [f32], first: Row<'_, f32>, steps: &[Step<Row<'_, f32>>]) {
    let mut start = 0;
    let mut blocks = out.chunks_exact_mut(BLOCK * S::F32_LANES);
    for out in &mut blocks {
        let values = block::<S, BLOCK>(simd, start, first, steps);
        for (to, value) in S::as_mut_simd_f32s(out).0.iter_mut().zip(values) {
            *to = value;
        }
        start += out.len();
    }
    for out in blocks.into_remainder().chunks_mut(S::F32_LANES) {
        let [value] = block::<S, 1>(simd, start, first, steps);
        simd.partial_store_f32s(out, value);
        start += out.len();
    }
}

/// The values of `N` vectors from point `start` on.
#[inline(always)]
fn block<S: Simd, const N: usize>(
    simd: S,
    start: usize,
    first: Row<'_, f32>,
    steps: &[Step<Row<'_, f32>>],
) -> [S::f32s; N] {
    let mut values = [simd.splat_f32s(0.0); N];
    values = zip(simd, values, first, start, |_, value| value);
    for step in steps {
        values = match step {
            Step::Both(BinaryOp::Mul) => values.map(|value| simd.mul_f32s(value, value)),
            Step::Left(BinaryOp::Add, b) => zip(simd, values, *b, start, |a, b| simd.add_f32s(a, b)),
            Step::Left(BinaryOp::Sub, b) => zip(simd, values, *b, start, |a, b| simd.sub_f32s(a, b)),
            Step::Left(BinaryOp::Mul, b) => zip(simd, values, *b, start, |a, b| simd.mul_f32s(a, b)),
            Step::Left(BinaryOp::Div, b) => zip(simd, values, *b, start, |a, b| simd.div_f32s(a, b)),
            Step::Left(BinaryOp::Min, b) => {
                zip(simd, values, *b, start, |a, b| simd.select_f32s(simd.less_than_f32s(b, a), b, a))
            }
            Step::Left(BinaryOp::Max, b) => {
                zip(simd, values, *b, start, |a, b| simd.select_f32s(simd.less_than_f32s(a, b), b, a))
            }
            Step::Right(BinaryOp::Sub, a) => zip(simd, values, *a, start, |b, a| simd.sub_f32s(a, b)),
            Step::Right(BinaryOp::Min, a) => {
                zip(simd, values, *a, start, |b, a| simd.select_f32s(simd.less_than_f32s(b, a), b, a))
            }
            Step::Right(BinaryOp::Max, a) => {
                zip(simd, values, *a, start, |b, a| simd.select_f32s(simd.less_than_f32s(a, b), b, a))
            }
            Step::Right(BinaryOp::Div, a) => zip(simd, values, *a, start, |b, a| simd.div_f32s(a, b)),
            other => {
                let mut lanes = values;
                by_lane(simd, other, start, bytemuck::cast_slice_mut(&mut lanes));
                lanes
            }
        };
    }
    values
}

/// A function of every vector and the points of a row; points beyond the row are zero.
#[inline(always)]
fn zip<S: Simd, const N: usize>(
    simd: S,
    mut values: [S::f32s; N],
    row: Row<'_, f32>,
    start: usize,
    function: impl Fn(S::f32s, S::f32s) -> S::f32s,
) -> [S::f32s; N] {
    match row {
        Row::Same(other) => {
            let other = simd.splat_f32s(other);
            for value in &mut values {
                *value = function(*value, other);
            }
        }
        Row::Each(others) => {
            let size = S::F32_LANES;
            if let Some(others) = others.get(start..start + N * size)
                && let Some(others) = S::as_simd_f32s(others).0.first_chunk::<N>()
            {
                for n in 0..N {
                    values[n] = function(values[n], others[n]);
                }
            } else {
                for (n, value) in values.iter_mut().enumerate() {
                    let rest = others.get(start + n * size..).unwrap_or(&[]);
                    let rest = rest.get(..size).unwrap_or(rest);
                    *value = function(*value, simd.partial_load_f32s(rest));
                }
            }
        }
    }
    values
}

/// A step that takes many registers, out of line so that it leaves them to the others.
#[inline(never)]
fn by_lane<S: Simd>(simd: S, step: &Step<Row<'_, f32>>, start: usize, lanes: &mut [f32]) {
    simd.vectorize(ByLane { step, start, lanes });
}

struct ByLane<'a, 's> {
    step: &'s Step<Row<'a, f32>>,
    /// The point of the first lane.
    start: usize,
    lanes: &'s mut [f32],
}

impl WithSimd for ByLane<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { step, start, lanes } = self;
        match *step {
            Step::Unary(op) => unary(op, lanes),
            Step::Both(op) => {
                for x in lanes {
                    *x = arithmetic(op, *x, *x);
                }
            }
            Step::Left(op, b) => {
                for (n, x) in lanes.iter_mut().enumerate() {
                    *x = arithmetic(op, *x, b.at(start + n).unwrap_or(0.0));
                }
            }
            Step::Right(op, a) => {
                for (n, x) in lanes.iter_mut().enumerate() {
                    *x = arithmetic(op, a.at(start + n).unwrap_or(0.0), *x);
                }
            }
            Step::Choose { comparison, a, b, side, other } => {
                for (n, value) in S::as_mut_simd_f32s(lanes).0.iter_mut().enumerate() {
                    let [a, b, other] = [a, b, other].map(|row| vector(simd, row, start + n * S::F32_LANES));
                    let (yes, no) = if side { (*value, other) } else { (other, *value) };
                    *value = choose(simd, comparison, (a, b), (yes, no));
                }
            }
        }
    }
}

/// The points of a row from `start` on; those beyond it are zero.
#[inline(always)]
fn vector<S: Simd>(simd: S, row: Row<'_, f32>, start: usize) -> S::f32s {
    let [value] = zip(simd, [simd.splat_f32s(0.0)], row, start, |_, value| value);
    value
}

#[inline(always)]
fn choose<S: Simd>(
    simd: S,
    comparison: BinaryOp,
    (a, b): (S::f32s, S::f32s),
    (yes, no): (S::f32s, S::f32s),
) -> S::f32s {
    match comparison {
        BinaryOp::Eq => simd.select_f32s(simd.equal_f32s(a, b), yes, no),
        BinaryOp::Lt => simd.select_f32s(simd.less_than_f32s(a, b), yes, no),
        BinaryOp::Le => simd.select_f32s(simd.less_than_or_equal_f32s(a, b), yes, no),
        BinaryOp::Gt => simd.select_f32s(simd.less_than_f32s(b, a), yes, no),
        BinaryOp::Ge => simd.select_f32s(simd.less_than_or_equal_f32s(b, a), yes, no),
        _ => simd.select_f32s(simd.equal_f32s(a, b), no, yes),
    }
}

fn arithmetic(op: BinaryOp, a: f32, b: f32) -> f32 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Min if b < a => b,
        BinaryOp::Max if b > a => b,
        BinaryOp::Mod => a - b * (a / b).floor(),
        BinaryOp::Pow => a.powf(b),
        _ => a,
    }
}

/// A function of every lane, as a loop that becomes vector code where possible.
#[inline(always)]
fn unary(op: UnaryOp, lanes: &mut [f32]) {
    macro_rules! each {
        ($function:expr) => {
            for x in lanes {
                *x = $function(*x);
            }
        };
    }
    match op {
        UnaryOp::Neg => each!(|x: f32| -x),
        UnaryOp::Abs => each!(f32::abs),
        UnaryOp::Exp => each!(f::exp),
        UnaryOp::Log => each!(f::log),
        UnaryOp::Sqrt => each!(f32::sqrt),
        UnaryOp::Rsqrt => each!(|x: f32| 1.0 / x.sqrt()),
        UnaryOp::Sigmoid => each!(f::sigmoid),
        UnaryOp::Silu => each!(f::silu),
        UnaryOp::Relu => each!(|x: f32| if x < 0.0 { 0.0 } else { x }),
        UnaryOp::Tanh => each!(f::tanh),
        UnaryOp::Erf => each!(f::erf),
        UnaryOp::Sin => each!(f32::sin),
        UnaryOp::Cos => each!(f32::cos),
        UnaryOp::Floor => each!(f32::floor),
        UnaryOp::Ceil => each!(f32::ceil),
        UnaryOp::Trunc => each!(f32::trunc),
        UnaryOp::Round => each!(f32::round_ties_even),
        UnaryOp::Not => {}
    }
}
