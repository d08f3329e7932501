use crate::plan::Body;
use rewire_graph::Scalar;
use rewire_graph::pointwise::functions::FUNCTION;
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use std::collections::{BTreeMap, BTreeSet};

/// Operations of a random number.
const UNIFORM: u64 = 40;

/// The points at which some expressions of a kernel are evaluated.
pub(super) struct Domain {
    /// The extent of every coordinate.
    pub extents: Vec<u64>,
    /// Coordinates, a bit each, that do not run independently, with the number of points they run over together. The
    /// first entry that a set of coordinates includes counts for it.
    pub joint: Vec<(u32, u64)>,
    /// How often every point is evaluated.
    pub times: u64,
}

impl Domain {
    pub fn dense(extents: Vec<u64>) -> Self {
        Self { extents, joint: vec![], times: 1 }
    }

    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// Different values of a set of coordinates.
    pub fn points(&self, coords: u32) -> u64 {
        let (joint, rest) = match self.joint.iter().find(|(bits, _)| coords & bits == *bits) {
            Some(&(bits, points)) => (points, coords & !self.joint_with(bits)),
            None => (1, coords),
        };
        let free = self.extents.iter().enumerate().filter(|(axis, _)| rest >> axis & 1 == 1);
        free.map(|(_, &extent)| extent).fold(joint, u64::saturating_mul)
    }

    /// The coordinates of an entry and those that it decides: all that are joint with others.
    fn joint_with(&self, bits: u32) -> u32 {
        self.joint.iter().fold(bits, |all, (other, _)| if other & bits != 0 { all | other } else { all })
    }

    /// All points.
    pub fn all(&self) -> u64 {
        self.points((1u32 << self.extents.len().min(31)) - 1)
    }
}

/// Bytes and operations of the expressions of a kernel.
#[derive(Default)]
pub(super) struct Expressions {
    /// By operand and load, the bytes that it reads of the operand.
    loads: BTreeMap<(u16, ExprId), u64>,
    pub reread: u64,
    pub scalar: u64,
}

impl Expressions {
    /// Adds what `roots` take at all points of a domain.
    pub fn add(&mut self, body: &Body, roots: &[ExprId], domain: &Domain) {
        let dag = &body.dag;
        let points = domain.all();
        for id in dag.reachable(roots) {
            if let Expr::Load { operand, .. } = *dag.expr(id)
                && let Some(operand_type) = body.operands.get(usize::from(operand))
            {
                let bytes = operand_type.dtype.format().bytes(domain.points(dag.coords(id)));
                let known = self.loads.entry((operand, id)).or_insert(0);
                let again = if *known > 0 { domain.times } else { domain.times.saturating_sub(1) };
                self.reread = self.reread.saturating_add(bytes.saturating_mul(again));
                *known = bytes.max(*known);
            }
            if dag.coords(id) != 0 || dag.values(id) != 0 {
                let times = points.saturating_mul(domain.times);
                self.scalar = self.scalar.saturating_add(times.saturating_mul(operations(dag, id)));
            }
        }
    }

    /// Bytes that are read of every operand, at most all it has: `size` tells.
    pub fn read(&self, size: impl Fn(u16) -> u64) -> u64 {
        let operands: BTreeSet<u16> = self.loads.keys().map(|(operand, _)| *operand).collect();
        let read = |operand: u16| {
            let loads = self.loads.range((operand, ExprId(0))..=(operand, ExprId(u32::MAX)));
            loads.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add).min(size(operand))
        };
        operands.into_iter().map(read).fold(0, u64::saturating_add)
    }
}

/// Operations of an expression, without its operands. Indices, conversions and truth values are free.
fn operations(dag: &Dag, id: ExprId) -> u64 {
    let arithmetic = |scalar: Scalar| u64::from(matches!(scalar, Scalar::F32 | Scalar::I64));
    match *dag.expr(id) {
        Expr::Unary(op, a) => op.declaration().cost * arithmetic(dag.scalar(a)),
        Expr::Binary(op, a, _) if dag.scalar(a) == Scalar::F32 => op.declaration().cost,
        Expr::Call { .. } => FUNCTION,
        Expr::Binary(_, a, _) => arithmetic(dag.scalar(a)),
        Expr::Select(_, a, _) => arithmetic(dag.scalar(a)),
        Expr::Uniform { .. } => UNIFORM,
        _ => 0,
    }
}
