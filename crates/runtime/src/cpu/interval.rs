//! Bounds of an expression over ranges of coordinates.

use super::memory::Elements;
use super::operand::{Env, View};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Dag, Expr, ExprId, Interval};

/// Elements of an operand that are read to bound a load; beyond that its bounds are unknown.
const SCAN: usize = 256;

/// The expressions of a condition, in order of evaluation.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    order: Vec<ExprId>,
    root: ExprId,
}

impl Bounds {
    pub(super) fn new(dag: &Dag, root: ExprId) -> Self {
        Self { order: dag.reachable(&[root]), root }
    }

    /// Bounds over the box of `coords`. `known` is scratch memory.
    pub(super) fn evaluate(
        &self,
        dag: &Dag,
        env: &Env<'_>,
        coords: &[Interval],
        known: &mut Vec<Interval>,
    ) -> Interval {
        known.clear();
        known.resize(dag.len(), Interval::UNKNOWN);
        for &id in &self.order {
            let bounds = bounds(dag, env, coords, known, id);
            if let Some(place) = known.get_mut(id.0 as usize) {
                *place = bounds;
            }
        }
        known.get(self.root.0 as usize).copied().unwrap_or(Interval::UNKNOWN)
    }
}

fn bounds(dag: &Dag, env: &Env<'_>, coords: &[Interval], known: &[Interval], id: ExprId) -> Interval {
    let of = |id: ExprId| known.get(id.0 as usize).copied().unwrap_or(Interval::UNKNOWN);
    match *dag.expr(id) {
        Expr::Float(bits) => Interval::point(f32::from_bits(bits).into()),
        Expr::Int(_, value) => Interval::point(value as f64),
        Expr::Bool(value) => Interval::point(u8::from(value).into()),
        Expr::Coord(axis) => coords.get(usize::from(axis)).copied().unwrap_or(Interval::UNKNOWN),
        Expr::Size(position) => {
            env.sizes.get(usize::from(position)).map_or(Interval::UNKNOWN, |&size| Interval::point(size.into()))
        }
        Expr::Load { operand, ref index } => match env.views.get(usize::from(operand)) {
            Some(view) => load(view, dag.scalar(id), index.iter().map(|&i| of(i))),
            None => Interval::UNKNOWN,
        },
        Expr::Sample { .. } | Expr::Uniform { .. } | Expr::Value(_) => Interval::UNKNOWN,
        // Rounding of floats is not bounded here.
        Expr::Unary(..) if dag.scalar(id) == Scalar::F32 => Interval::UNKNOWN,
        Expr::Unary(op, a) => Interval::unary(op, of(a)),
        Expr::Binary(op, a, b) => binary(dag, id, op, of(a), of(b)),
        Expr::Select(c, a, b) => Interval::select(of(c), of(a), of(b)),
        Expr::Cast(to, a) => match (dag.scalar(a), to) {
            (Scalar::Bool, _) => of(a),
            (Scalar::I32, Scalar::I64) => of(a),
            (Scalar::I64, Scalar::I32) if within_i32(of(a)) => of(a),
            _ => Interval::UNKNOWN,
        },
    }
}

fn binary(dag: &Dag, id: ExprId, op: rewire_graph::pointwise::BinaryOp, a: Interval, b: Interval) -> Interval {
    let scalar = dag.scalar(id);
    if scalar == Scalar::F32 {
        return Interval::UNKNOWN;
    }
    let points = a.low == a.high && b.low == b.high && a.low.is_finite() && b.low.is_finite();
    let result = if points && !matches!(scalar, Scalar::Bool) {
        Interval::point(op.evaluate_int(a.low as i64, b.low as i64) as f64)
    } else {
        Interval::binary(op, a, b)
    };
    match scalar {
        Scalar::Bool => result,
        Scalar::I32 if within_i32(result) => result,
        Scalar::I64 if result.low.abs() < EXACT && result.high.abs() < EXACT => result,
        _ => Interval::UNKNOWN,
    }
}

/// Integers below this magnitude are exact in doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn within_i32(bounds: Interval) -> bool {
    bounds.low >= f64::from(i32::MIN) && bounds.high <= f64::from(i32::MAX)
}

/// The smallest and largest of the elements that the indices reach.
fn load(view: &View<'_>, scalar: Scalar, index: impl Iterator<Item = Interval>) -> Interval {
    let mut offset = 0;
    let (mut count, mut step) = (1, 0);
    for ((bounds, &extent), &stride) in index.zip(&view.shape).zip(&view.strides) {
        if !(bounds.low >= 0.0 && bounds.high < extent as f64) {
            return Interval::UNKNOWN;
        }
        let (low, high) = (bounds.low as usize, bounds.high as usize);
        offset += low * stride;
        if high > low {
            if count > 1 || high - low >= SCAN {
                return Interval::UNKNOWN;
            }
            (count, step) = (high - low + 1, stride);
        }
    }
    let mut found: Option<Interval> = None;
    for n in 0..count {
        match element(view.elements, offset + n * step) {
            Some(value) if value.is_finite() => {
                let value = Interval::point(value);
                found = Some(found.map_or(value, |found| found.join(value)));
            }
            _ => return Interval::UNKNOWN,
        }
    }
    found
        .filter(|found| scalar == Scalar::F32 || found.low.abs().max(found.high.abs()) < EXACT)
        .unwrap_or(Interval::UNKNOWN)
}

fn element(elements: Elements<'_>, at: usize) -> Option<f64> {
    match elements {
        Elements::F32(e) => e.get(at).map(|&e| e.into()),
        Elements::F16(e) => e.get(at).map(|&e| e.into()),
        Elements::I64(e) => e.get(at).map(|&e| e as f64),
        Elements::I32(e) => e.get(at).map(|&e| e.into()),
        Elements::Bool(e) => e.get(at).map(|&e| f64::from(u8::from(e != 0))),
    }
}
