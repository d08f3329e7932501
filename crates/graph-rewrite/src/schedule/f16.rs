//! Decides which matmul operands may be f16 on matrix hardware.
//!
//! f16 is limited to 65504 and represents every integer up to 2048. An operand is therefore rounded to f16 only if that
//! is equivalent to storing it as f16: it is computed from stored f16 values and is at most as large as these times a
//! factor that its rows share. A scale that all rows share, such as the weight of a norm, and a row divided by its norm
//! qualify; squares, powers, exponentials without a bound, user-defined functions, integers and bounded functions of
//! f32 do not. 8-bit rows, which are coarser than f16, are clamped to the largest f16 when they are loaded.

use super::Reduced;
use rewire_graph::nest::{Body, MemorySpace};
use rewire_graph::op::ReduceOp;
use rewire_graph::pointwise::{BinaryOp, Dag, Domain, Expr, ExprId, UnaryOp};
use rewire_graph::{DType, Scalar};

/// The largest f16.
const LARGEST: f64 = 65504.0;
/// The largest magnitude of [`DType::I8`].
const BYTES: f64 = 128.0;
/// Integers up to this one are exact in f16.
const WHOLE: i64 = 2048;
/// Largest factor by which constants may scale stored f16 values.
const GAIN: f64 = 64.0;
/// Bound of the absolute value of the logarithm of a float.
const LOG: f64 = 104.0;

/// Bounds of an expression's magnitude.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Magnitude {
    /// At most this value, whatever is loaded.
    Bounded(f64),
    /// At most `gain` times a product of stored f16 values. `rows` of its factors differ between rows.
    F16 {
        gain: f64,
        rows: u32,
    },
    /// Computed only from results of reductions; `inverse` if it divides by one.
    Statistic {
        inverse: bool,
    },
    Unbounded,
}

use Magnitude::{Bounded, F16, Statistic, Unbounded};

/// True if all of `roots` may be f16. Each has the coordinate of its columns; `stats` defines the values that they
/// read.
pub(super) fn suit(body: &Body, roots: &[(ExprId, u8)], stats: &[Reduced]) -> bool {
    let analysis = |column| Analysis { body, column, stats };
    roots.iter().all(|&(root, column)| match analysis(column).of_root(&body.dag, root) {
        Bounded(most) => most <= LARGEST && !analysis(column).reads_singles(root),
        F16 { gain, rows } => gain <= GAIN && rows <= 1,
        Statistic { .. } | Unbounded => false,
    })
}

struct Analysis<'a> {
    body: &'a Body,
    column: u8,
    stats: &'a [Reduced],
}

impl Domain for Analysis<'_> {
    type Value = Magnitude;

    const UNKNOWN: Magnitude = Unbounded;

    fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> Magnitude) -> Magnitude {
        match *dag.expr(id) {
            Expr::Float(bits) => Bounded(f64::from(f32::from_bits(bits)).abs()),
            Expr::Value(_) => Statistic { inverse: false },
            Expr::Uniform { .. } => Bounded(1.0),
            Expr::Load { operand, ref index } => self.load(operand, index),
            Expr::Unary(op, a) => self.unary(op, a, of(a)),
            Expr::Binary(op, a, b) if dag.scalar(id) == Scalar::F32 => self.binary(op, (b, of(a), of(b))),
            Expr::Select(_, a, b) => join(of(a), of(b)),
            Expr::Cast(Scalar::F32, a) if dag.scalar(a) == Scalar::Bool => Bounded(1.0),
            Expr::Cast(Scalar::F32, a) => match dag.range(a) {
                Some((low, high)) if low >= -WHOLE && high <= WHOLE => Bounded(low.abs().max(high.abs()) as f64),
                _ => Unbounded,
            },
            _ => Unbounded,
        }
    }
}

impl Analysis<'_> {
    fn reads_singles(&self, root: ExprId) -> bool {
        self.body.dag.reachable(&[root]).into_iter().any(|id| match *self.body.dag.expr(id) {
            Expr::Load { operand, .. } => {
                self.body.operands.get(usize::from(operand)).is_some_and(|operand| operand.dtype == DType::F32)
            }
            _ => false,
        })
    }

    fn load(&self, operand: u16, index: &[ExprId]) -> Magnitude {
        let dag = &self.body.dag;
        let shared = index.iter().all(|&i| dag.coords(i) & !(1 << self.column) == 0);
        match self.body.operands.get(usize::from(operand)) {
            Some(operand) if operand.dtype == DType::F16 && operand.space != MemorySpace::Host => {
                F16 { gain: 1.0, rows: u32::from(!shared) }
            }
            // Kernels clamp them to the f16 range.
            Some(operand) if operand.dtype == DType::I8 => Bounded(BYTES),
            Some(operand) if operand.dtype == DType::Rows8 => Bounded(LARGEST),
            _ => Unbounded,
        }
    }

    fn unary(&self, op: UnaryOp, a: ExprId, x: Magnitude) -> Magnitude {
        use UnaryOp::*;
        match (op, x) {
            (Sigmoid | Tanh | Erf | Sin | Cos, _) => Bounded(1.0),
            (_, Statistic { inverse }) => Statistic { inverse: inverse || op == Rsqrt },
            (Neg | Abs | Relu | Silu | Floor | Ceil | Trunc | Round, x) => x,
            (Sqrt, Bounded(most)) => Bounded(most.sqrt()),
            (Sqrt, F16 { .. }) => F16 { gain: 1.0, rows: 1 },
            (Exp, Bounded(most)) => Bounded(most.exp()),
            (Exp, _) if self.is_below_largest(a) => Bounded(1.0),
            (Log, Bounded(_) | F16 { .. }) => Bounded(LOG),
            _ => Unbounded,
        }
    }

    /// True for an element minus the maximum of its row.
    fn is_below_largest(&self, id: ExprId) -> bool {
        let dag = &self.body.dag;
        let &Expr::Binary(BinaryOp::Sub, element, largest) = dag.expr(id) else { return false };
        let &Expr::Value(position) = dag.expr(largest) else { return false };
        let stat = self.stats.get(usize::from(position));
        stat.is_some_and(|stat| stat.op == ReduceOp::Max && stat.value == element)
    }

    fn binary(&self, op: BinaryOp, (right, a, b): (ExprId, Magnitude, Magnitude)) -> Magnitude {
        match (op, a, b) {
            (BinaryOp::Div, Statistic { .. } | Bounded(_), Statistic { .. }) => Statistic { inverse: true },
            (_, Statistic { inverse: a }, Statistic { inverse: b }) => Statistic { inverse: a || b },
            (_, Statistic { inverse }, Bounded(_)) | (_, Bounded(_), Statistic { inverse }) => Statistic { inverse },
            (BinaryOp::Add | BinaryOp::Sub, ..) => sum(a, b),
            (BinaryOp::Mul, ..) => product(a, b),
            (BinaryOp::Div, F16 { .. }, Statistic { .. }) => F16 { gain: 1.0, rows: 0 },
            (BinaryOp::Div, a, Bounded(_)) => match *self.body.dag.expr(right) {
                Expr::Float(bits) => product(a, Bounded(f64::from(f32::from_bits(bits)).recip().abs())),
                _ => Unbounded,
            },
            (BinaryOp::Min | BinaryOp::Max, ..) => join(a, b),
            _ => Unbounded,
        }
    }
}

fn sum(a: Magnitude, b: Magnitude) -> Magnitude {
    match (a, b) {
        (Bounded(a), Bounded(b)) => Bounded(a + b),
        (F16 { gain, rows }, F16 { gain: other, rows: more }) => F16 { gain: gain + other, rows: rows.max(more) },
        // A statistic of a row is about as large as its elements.
        (F16 { gain, rows }, Statistic { .. }) | (Statistic { .. }, F16 { gain, rows }) => {
            F16 { gain: gain + 1.0, rows }
        }
        (F16 { gain, rows }, Bounded(most)) | (Bounded(most), F16 { gain, rows }) => {
            F16 { gain: gain + most / LARGEST, rows }
        }
        _ => Unbounded,
    }
}

fn product(a: Magnitude, b: Magnitude) -> Magnitude {
    match (a, b) {
        (Bounded(a), Bounded(b)) => Bounded(a * b),
        (F16 { gain, rows }, Bounded(most)) | (Bounded(most), F16 { gain, rows }) => F16 { gain: gain * most, rows },
        (F16 { gain, rows }, F16 { gain: other, rows: more }) => F16 { gain: gain * other, rows: rows + more },
        // A row divided by its own statistic is normalised.
        (F16 { .. }, Statistic { inverse: true }) | (Statistic { inverse: true }, F16 { .. }) => {
            F16 { gain: 1.0, rows: 0 }
        }
        _ => Unbounded,
    }
}

/// The bound of a value that is one of two.
fn join(a: Magnitude, b: Magnitude) -> Magnitude {
    match (a, b) {
        (Bounded(a), Bounded(b)) => Bounded(a.max(b)),
        (F16 { gain, rows }, F16 { gain: other, rows: more }) => F16 { gain: gain.max(other), rows: rows.max(more) },
        (F16 { gain, rows }, Bounded(most)) | (Bounded(most), F16 { gain, rows }) => {
            F16 { gain: gain.max(most / LARGEST), rows }
        }
        (Statistic { inverse: a }, Statistic { inverse: b }) => Statistic { inverse: a && b },
        _ => Unbounded,
    }
}
