//! Fuses float expressions into chains.

use super::branch::Branches;
use super::program::HoistLevel;
use super::step::ChainStep;
use rewire_graph::Scalar;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use std::collections::{HashMap, HashSet};

/// Properties of a program's expressions.
pub(super) struct ExprInfo<'a> {
    pub dag: &'a Dag,
    pub rates: &'a HashMap<ExprId, HoistLevel>,
    pub uses: &'a HashMap<ExprId, usize>,
    pub branches: &'a Branches,
    /// True for the results of accumulations.
    pub is_accumulator: &'a dyn Fn(ExprId) -> bool,
}

/// Chains of float functions. A function is fused if its only user is the next one in the chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Fusion {
    /// For each function, the length of the chain that ends with it.
    lengths: HashMap<ExprId, usize>,
    /// For each function, the previous one in its chain.
    before: HashMap<ExprId, ExprId>,
    absorbed: HashSet<ExprId>,
    /// Functions whose chain starts at their right operand.
    turned: HashSet<ExprId>,
}

impl Fusion {
    /// `order` has operands before users.
    pub(super) fn new(facts: &ExprInfo<'_>, order: &[ExprId]) -> Self {
        let mut this = Self::default();
        for &id in order.iter().filter(|&&id| facts.is_function(id)) {
            let operands: &[ExprId] = match facts.dag.expr(id) {
                Expr::Unary(_, a) => &[*a],
                Expr::Binary(_, a, b) => &[*a, *b],
                Expr::Select(c, a, b) => {
                    this.absorbed.insert(*c);
                    &[*a, *b]
                }
                _ => &[],
            };
            let before = operands.iter().copied().filter(|&operand| this.may_absorb(facts, id, operand));
            let before = before.max_by_key(|operand| this.lengths.get(operand).copied());
            let length = before.and_then(|before| this.lengths.get(&before)).map_or(1, |length| length + 1);
            this.lengths.insert(id, length);
            if let Some(before) = before {
                this.before.insert(id, before);
                this.absorbed.insert(before);
            } else if let &[a, b] = operands
                && facts.rates.get(&a) < facts.rates.get(&b)
            {
                this.turned.insert(id);
            }
        }
        this
    }

    fn may_absorb(&self, facts: &ExprInfo<'_>, id: ExprId, operand: ExprId) -> bool {
        let reads = match *facts.dag.expr(id) {
            Expr::Binary(_, a, b) if a == b => 2,
            _ => 1,
        };
        self.lengths.contains_key(&operand) && facts.serves_only(operand, id, reads)
    }

    /// True for a function that ends a chain.
    pub(super) fn ends_chain(&self, id: ExprId) -> bool {
        self.lengths.contains_key(&id) && !self.absorbed.contains(&id)
    }

    /// True for values computed within a chain.
    pub(super) fn is_absorbed(&self, id: ExprId) -> bool {
        self.absorbed.contains(&id)
    }

    /// The chain that ends with `id`: its initial value, and its steps.
    pub(super) fn chain(&self, dag: &Dag, id: ExprId) -> (ExprId, Vec<ChainStep<ExprId>>) {
        let mut functions = vec![id];
        while let Some(&before) = functions.last().and_then(|last| self.before.get(last)) {
            functions.push(before);
        }
        let (mut first, mut steps) = (id, vec![]);
        for &id in functions.iter().rev() {
            let before = self.before.get(&id).copied();
            let (left, step) = match *dag.expr(id) {
                Expr::Unary(op, a) => (a, ChainStep::Unary(op)),
                Expr::Binary(op, a, b) if a == b => (a, ChainStep::Both(op)),
                Expr::Binary(op, a, b) if before == Some(b) || self.turned.contains(&id) => match op {
                    BinaryOp::Add | BinaryOp::Mul => (b, ChainStep::Left(op, a)),
                    _ => (b, ChainStep::Right(op, a)),
                },
                Expr::Binary(op, a, b) => (a, ChainStep::Left(op, b)),
                Expr::Select(c, a, b) => {
                    let Expr::Binary(comparison, x, y) = *dag.expr(c) else { continue };
                    let (value, other, side) = if before == Some(b) { (b, a, false) } else { (a, b, true) };
                    (value, ChainStep::Choose { comparison, a: x, b: y, side, other })
                }
                _ => continue,
            };
            if before.is_none() {
                first = left;
            }
            steps.push(step);
        }
        (first, steps)
    }
}

impl ExprInfo<'_> {
    /// True for a float function that can be a step of a chain.
    fn is_function(&self, id: ExprId) -> bool {
        let float = |id: ExprId| self.dag.scalar(id) == Scalar::F32;
        if (self.is_accumulator)(id) || !float(id) {
            return false;
        }
        match *self.dag.expr(id) {
            Expr::Unary(..) => true,
            Expr::Binary(op, a, _) => float(a) && !op.is_comparison(),
            Expr::Select(c, a, b) => {
                let comparison = matches!(*self.dag.expr(c), Expr::Binary(op, x, _) if op.is_comparison() && float(x));
                comparison && a != b && !(self.is_accumulator)(c) && self.serves_only(c, id, 1)
            }
            _ => false,
        }
    }

    /// True if all uses of `id` are `reads` reads by `user`, and both are computed under the same conditions.
    fn serves_only(&self, id: ExprId, user: ExprId, reads: usize) -> bool {
        self.uses.get(&id) == Some(&reads)
            && self.rates.get(&id) == self.rates.get(&user)
            && !self.branches.decides(id)
            && self.branches.are_together(id, user)
    }
}
