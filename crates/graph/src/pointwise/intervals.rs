use super::algebra::Numbers;
use super::dag::{Dag, Expr, ExprId};
use super::domain::Domain;
use super::functions::BinaryOp;
use super::interval::Interval;
use crate::Scalar;

/// Bounds of the sizes and elements that a kernel reads in a run.
pub trait ReadBounds {
    /// A size of the body.
    fn size(&self, position: u16) -> Interval;

    /// Bounds of an operand's elements at all indices within `index`; [`Interval::UNKNOWN`] if its elements are not
    /// examined.
    fn load(&self, operand: u16, scalar: Scalar, index: &[Interval]) -> Interval;
}

/// Computes bounds of an expression over ranges of coordinates.
///
/// ```
/// use rewire_graph::Scalar;
/// use rewire_graph::pointwise::{BinaryOp, Intervals, Dag, Interval, ReadBounds, Tri};
/// struct Unknown;
/// impl ReadBounds for Unknown {
///     fn size(&self, _: u16) -> Interval {
///         Interval::UNKNOWN
///     }
///     fn load(&self, _: u16, _: Scalar, _: &[Interval]) -> Interval {
///         Interval::UNKNOWN
///     }
/// }
/// let mut dag = Dag::new();
/// let (row, key) = (dag.coord(0, None), dag.coord(1, None));
/// let causal = dag.binary(BinaryOp::Ge, row, key);
/// let tile = [Interval::new(32.0, 63.0), Interval::new(0.0, 31.0)];
/// assert_eq!(Intervals::new(&dag, causal).evaluate(&dag, &Unknown, &tile, &mut vec![]).truth(), Tri::Always);
/// ```
#[derive(Clone, Debug)]
pub struct Intervals {
    /// In order of evaluation.
    order: Vec<ExprId>,
    /// The number of leading expressions that do not depend on the axis.
    fixed: usize,
    root: ExprId,
}

impl Intervals {
    /// The bounds of `root`.
    pub fn new(dag: &Dag, root: ExprId) -> Self {
        Self { order: dag.reachable(&[root]), fixed: 0, root }
    }

    /// The bounds of `root` for successive ranges of coordinate `axis`.
    pub fn along(dag: &Dag, root: ExprId, axis: u8) -> Self {
        let moves = |id: &ExprId| dag.coords(*id).checked_shr(axis.into()).unwrap_or(0) & 1 == 1;
        let (moving, mut order): (Vec<ExprId>, Vec<ExprId>) = dag.reachable(&[root]).into_iter().partition(moves);
        let fixed = order.len();
        order.extend(moving);
        Self { order, fixed, root }
    }

    /// Bounds over the box of `coords`. `known` is scratch memory.
    pub fn evaluate(
        &self,
        dag: &Dag,
        reads: &impl ReadBounds,
        coords: &[Interval],
        known: &mut Vec<Interval>,
    ) -> Interval {
        self.prepare(dag, reads, coords, known);
        self.advance(dag, reads, coords, known)
    }

    /// Computes the bounds that do not depend on the axis, for calls of [`Intervals::advance`] with the same other
    /// coordinates.
    pub fn prepare(&self, dag: &Dag, reads: &impl ReadBounds, coords: &[Interval], known: &mut Vec<Interval>) {
        known.clear();
        known.resize(dag.len(), Interval::UNKNOWN);
        Bounds { reads, coords }.evaluate(dag, self.order[..self.fixed].iter().copied(), known);
    }

    /// Bounds over the box of `coords`, after [`Intervals::prepare`] filled `known`.
    pub fn advance(&self, dag: &Dag, reads: &impl ReadBounds, coords: &[Interval], known: &mut [Interval]) -> Interval {
        Bounds { reads, coords }.evaluate(dag, self.order[self.fixed..].iter().copied(), known);
        known[self.root.0 as usize]
    }
}

/// Bounds over a box of coordinates.
struct Bounds<'a, R> {
    reads: &'a R,
    coords: &'a [Interval],
}

impl<R: ReadBounds> Domain for Bounds<'_, R> {
    type Value = Interval;

    const UNKNOWN: Interval = Interval::UNKNOWN;

    fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> Interval) -> Interval {
        let bounds = self.unchecked(dag, id, of);
        if dag.scalar(id) == Scalar::Bool && bounds == Interval::UNKNOWN { Interval::UNDECIDED } else { bounds }
    }
}

impl<R: ReadBounds> Bounds<'_, R> {
    fn unchecked(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> Interval) -> Interval {
        match *dag.expr(id) {
            Expr::Float(bits) if f32::from_bits(bits).is_nan() => Interval::UNKNOWN,
            Expr::Float(bits) => Interval::point(f32::from_bits(bits).into()),
            Expr::Int(scalar, value) => exact(scalar, Interval::point(value as f64)),
            Expr::Bool(value) => Interval::point(u8::from(value).into()),
            Expr::Coord(axis) => self.coords.get(usize::from(axis)).copied().unwrap_or(Interval::UNKNOWN),
            Expr::Size(position) => self.reads.size(position),
            Expr::Load { operand, ref index } => {
                let index: Vec<Interval> = index.iter().map(|&i| of(i)).collect();
                self.reads.load(operand, dag.scalar(id), &index)
            }
            Expr::Sample { .. } | Expr::Uniform { .. } | Expr::Call { .. } | Expr::Value(_) => Interval::UNKNOWN,
            // Rounding of floats is not included in these bounds.
            Expr::Unary(..) | Expr::Binary(..) if dag.scalar(id) == Scalar::F32 => Interval::UNKNOWN,
            Expr::Unary(op, a) => {
                let scalar = dag.scalar(a);
                exact(scalar, op.interval(&mut Numbers(scalar), scalar, &of(a)).unwrap_or(Interval::UNKNOWN))
            }
            Expr::Binary(op, a, b) => binary(dag.scalar(a), op, of(a), of(b)),
            Expr::Select(c, a, b) => {
                let scalar = dag.scalar(id);
                Interval::select(&mut Numbers(scalar), scalar, &of(c), [&of(a), &of(b)])
            }
            Expr::Cast(to, a) => match (dag.scalar(a), to) {
                (Scalar::Bool, _) => of(a),
                (Scalar::I32, Scalar::I64) => of(a),
                (Scalar::I64, Scalar::I32) => exact(to, of(a)),
                _ => Interval::UNKNOWN,
            },
        }
    }
}

fn binary(scalar: Scalar, op: BinaryOp, a: Interval, b: Interval) -> Interval {
    let points = a.low == a.high && b.low == b.high && a.low.is_finite() && b.low.is_finite();
    let result = match scalar {
        Scalar::I32 | Scalar::I64 if points => {
            Some(Interval::point(op.evaluate_int(scalar, a.low as i64, b.low as i64) as f64))
        }
        _ => op.interval(&mut Numbers(scalar), scalar, [&a, &b]),
    };
    exact(op.result(scalar), result.unwrap_or(Interval::UNKNOWN))
}

/// Drops bounds beyond which integers may wrap around, or that f64 cannot represent.
fn exact(scalar: Scalar, bounds: Interval) -> Interval {
    let (least, most) = match scalar {
        Scalar::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        Scalar::I64 => (1.0 - Interval::EXACT, Interval::EXACT - 1.0),
        Scalar::F32 | Scalar::Bool => return bounds,
    };
    if bounds.low >= least && bounds.high <= most { bounds } else { Interval::UNKNOWN }
}
