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
    let mut values = load::<S, N>(simd, first, start);
    for step in steps {
        values = match *step {
            Step::Unary(op) => unary::<S, N>(simd, op, values),
            Step::Both(op) => binary::<S, N>(simd, op, values, values),
            Step::Left(BinaryOp::Add, b) => zip(simd, values, b, start, |a, b| simd.add_f32s(a, b)),
            Step::Left(BinaryOp::Sub, b) => zip(simd, values, b, start, |a, b| simd.sub_f32s(a, b)),
            Step::Left(BinaryOp::Mul, b) => zip(simd, values, b, start, |a, b| simd.mul_f32s(a, b)),
            Step::Right(BinaryOp::Sub, a) => zip(simd, values, a, start, |b, a| simd.sub_f32s(a, b)),
            Step::Left(op, b) => binary::<S, N>(simd, op, values, load(simd, b, start)),
            Step::Right(op, a) => binary::<S, N>(simd, op, load(simd, a, start), values),
            Step::Choose { comparison, a, b, side, other } => {
                let (a, b) = (load::<S, N>(simd, a, start), load::<S, N>(simd, b, start));
                let other = load::<S, N>(simd, other, start);
                choose(simd, comparison, (a, b), if side { (values, other) } else { (other, values) })
            }
        };
    }
    values
}

#[inline(always)]
fn load<S: Simd, const N: usize>(simd: S, row: Row<'_, f32>, start: usize) -> [S::f32s; N] {
    zip(simd, [simd.splat_f32s(0.0); N], row, start, |_, value| value)
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

#[inline(always)]
fn choose<S: Simd, const N: usize>(
    simd: S,
    comparison: BinaryOp,
    (a, b): ([S::f32s; N], [S::f32s; N]),
    (yes, no): ([S::f32s; N], [S::f32s; N]),
) -> [S::f32s; N] {
    let mut values = no;
    for n in 0..N {
        let (a, b) = (a[n], b[n]);
        let holds = match comparison {
            BinaryOp::Eq => simd.equal_f32s(a, b),
            BinaryOp::Lt => simd.less_than_f32s(a, b),
            BinaryOp::Le => simd.less_than_or_equal_f32s(a, b),
            BinaryOp::Gt => simd.less_than_f32s(b, a),
            BinaryOp::Ge => simd.less_than_or_equal_f32s(b, a),
            _ => {
                values[n] = simd.select_f32s(simd.equal_f32s(a, b), no[n], yes[n]);
                continue;
            }
        };
        values[n] = simd.select_f32s(holds, yes[n], no[n]);
    }
    values
}

#[inline(always)]
fn binary<S: Simd, const N: usize>(simd: S, op: BinaryOp, a: [S::f32s; N], b: [S::f32s; N]) -> [S::f32s; N] {
    macro_rules! each {
        ($a:ident, $b:ident => $result:expr) => {{
            let mut values = a;
            for n in 0..N {
                let ($a, $b) = (a[n], b[n]);
                values[n] = $result;
            }
            values
        }};
    }
    match op {
        BinaryOp::Add => each!(a, b => simd.add_f32s(a, b)),
        BinaryOp::Sub => each!(a, b => simd.sub_f32s(a, b)),
        BinaryOp::Mul => each!(a, b => simd.mul_f32s(a, b)),
        BinaryOp::Div => each!(a, b => simd.div_f32s(a, b)),
        BinaryOp::Min => each!(a, b => simd.select_f32s(simd.less_than_f32s(b, a), b, a)),
        BinaryOp::Max => each!(a, b => simd.select_f32s(simd.less_than_f32s(a, b), b, a)),
        BinaryOp::Mod => by_lane::<S, N>(a, b, |x, y| x - y * (x / y).floor()),
        _ => by_lane::<S, N>(a, b, f32::powf),
    }
}

/// A function without vector operations of its own, as a loop that becomes vector code where possible.
#[inline(always)]
fn by_lane<S: Simd, const N: usize>(
    mut a: [S::f32s; N],
    b: [S::f32s; N],
    function: impl Fn(f32, f32) -> f32,
) -> [S::f32s; N] {
    let lanes: &mut [f32] = bytemuck::cast_slice_mut(&mut a);
    for (a, &b) in lanes.iter_mut().zip(bytemuck::cast_slice::<S::f32s, f32>(&b)) {
        *a = function(*a, b);
    }
    a
}

#[inline(always)]
fn unary<S: Simd, const N: usize>(simd: S, op: UnaryOp, values: [S::f32s; N]) -> [S::f32s; N] {
    macro_rules! lanes {
        ($function:expr) => {
            by_lane::<S, N>(values, values, |x, _| $function(x))
        };
    }
    match op {
        UnaryOp::Neg => lanes!(|x: f32| -x),
        UnaryOp::Abs => lanes!(f32::abs),
        UnaryOp::Exp => lanes!(f::exp),
        UnaryOp::Log => lanes!(f::log),
        UnaryOp::Sqrt => lanes!(f32::sqrt),
        UnaryOp::Rsqrt => lanes!(|x: f32| 1.0 / x.sqrt()),
        UnaryOp::Sigmoid => lanes!(f::sigmoid),
        UnaryOp::Silu => lanes!(f::silu),
        UnaryOp::Relu => {
            zip(simd, values, Row::Same(0.0), 0, |x, zero| simd.select_f32s(simd.less_than_f32s(x, zero), zero, x))
        }
        UnaryOp::Tanh => lanes!(f::tanh),
        UnaryOp::Erf => lanes!(f::erf),
        UnaryOp::Sin => lanes!(f32::sin),
        UnaryOp::Cos => lanes!(f32::cos),
        UnaryOp::Floor => lanes!(f32::floor),
        UnaryOp::Ceil => lanes!(f32::ceil),
        UnaryOp::Trunc => lanes!(f32::trunc),
        UnaryOp::Round => lanes!(f32::round_ties_even),
        UnaryOp::Not => values,
    }
}
