use super::dag::{Dag, Expr, ExprId};
use super::function::BinaryOp;
use crate::Scalar;

/// An expression that is no sum, and its factor.
type Term = (ExprId, i64);

/// A linear form: a sum of integer multiples of expressions that are no sums, and a constant.
struct Linear {
    terms: Vec<Term>,
    constant: i64,
}

impl Dag {
    pub(super) fn simplify_bool(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let (constant, other) = match (self.expr(a), self.expr(b)) {
            (&Expr::Bool(value), _) => (value, b),
            (_, &Expr::Bool(value)) => (value, a),
            _ if a == b && matches!(op, BinaryOp::And | BinaryOp::Or) => return Some(a),
            _ => return None,
        };
        match (op, constant) {
            (BinaryOp::And, true) | (BinaryOp::Or, false) => Some(other),
            (BinaryOp::And, false) | (BinaryOp::Or, true) => Some(self.constant(Scalar::Bool, i64::from(constant))),
            _ => None,
        }
    }

    pub(super) fn simplify_int(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let (x, y) = (self.range(a), self.range(b));
        match op {
            BinaryOp::Add | BinaryOp::Sub => Some(self.sum(a, b, if op == BinaryOp::Add { 1 } else { -1 })),
            BinaryOp::Mul => self.scaled(a, b),
            BinaryOp::Div | BinaryOp::Mod => self.divided(op, a, b),
            BinaryOp::Min | BinaryOp::Max => {
                let ((x0, x1), (y0, y1)) = (x?, y?);
                let (below, above) = if op == BinaryOp::Min { (a, b) } else { (b, a) };
                if a == b || x1 <= y0 {
                    Some(below)
                } else if y1 <= x0 {
                    Some(above)
                } else {
                    None
                }
            }
            _ if op.is_comparison() => {
                let ((x0, x1), (y0, y1)) = (x?, y?);
                let known = match op {
                    BinaryOp::Lt if x1 < y0 => true,
                    BinaryOp::Lt if x0 >= y1 => false,
                    BinaryOp::Le if x1 <= y0 => true,
                    BinaryOp::Le if x0 > y1 => false,
                    BinaryOp::Gt if x0 > y1 => true,
                    BinaryOp::Gt if x1 <= y0 => false,
                    BinaryOp::Ge if x0 >= y1 => true,
                    BinaryOp::Ge if x1 < y0 => false,
                    BinaryOp::Eq | BinaryOp::Ne if x1 < y0 || y1 < x0 => op == BinaryOp::Ne,
                    BinaryOp::Eq | BinaryOp::Le | BinaryOp::Ge if a == b => true,
                    BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Gt if a == b => false,
                    _ => return None,
                };
                Some(self.constant(Scalar::Bool, i64::from(known)))
            }
            _ => None,
        }
    }

    fn linear(&self, id: ExprId) -> Linear {
        let mut linear = Linear { terms: vec![], constant: 0 };
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            match *self.expr(id) {
                Expr::Int(_, constant) => linear.constant = linear.constant.wrapping_add(constant),
                Expr::Binary(BinaryOp::Add, a, b) => stack.extend([b, a]),
                Expr::Binary(BinaryOp::Mul, a, b) => linear.terms.push(match (self.expr(a), self.expr(b)) {
                    (&Expr::Int(_, factor), _) => (b, factor),
                    (_, &Expr::Int(_, factor)) => (a, factor),
                    _ => (id, 1),
                }),
                _ => linear.terms.push((id, 1)),
            }
        }
        linear
    }

    /// Joins `x / c * c + x mod c` to `x`.
    fn rejoin(&self, linear: &mut Linear) {
        while let Some((quotient, rest, x, factor)) = self.split_pair(&linear.terms) {
            linear.terms.retain(|term| *term != quotient && *term != rest);
            let joined = self.linear(x);
            linear.terms.extend(joined.terms.into_iter().map(|(atom, n)| (atom, n.wrapping_mul(factor))));
            linear.constant = linear.constant.wrapping_add(joined.constant.wrapping_mul(factor));
        }
    }

    /// Terms `f c (x / c)` and `f (x mod c)` of a sum, with `x` and `f`.
    fn split_pair(&self, terms: &[Term]) -> Option<(Term, Term, ExprId, i64)> {
        terms.iter().find_map(|&(rest, factor)| {
            let &Expr::Binary(BinaryOp::Mod, x, divisor) = self.expr(rest) else { return None };
            let &Expr::Int(_, divisor_value) = self.expr(divisor) else { return None };
            let quotient = self.find(&Expr::Binary(BinaryOp::Div, x, divisor))?;
            let quotient = (quotient, factor.wrapping_mul(divisor_value));
            terms.contains(&quotient).then_some((quotient, (rest, factor), x, factor))
        })
    }

    fn sum_of(&mut self, mut linear: Linear) -> ExprId {
        self.rejoin(&mut linear);
        linear.terms.sort_unstable();
        let mut sum: Option<ExprId> = None;
        let mut at = 0;
        while at < linear.terms.len() {
            let atom = linear.terms[at].0;
            let same = linear.terms[at..].iter().take_while(|term| term.0 == atom).count();
            let factor: i64 = linear.terms[at..at + same].iter().fold(0, |sum, term| i64::wrapping_add(sum, term.1));
            at += same;
            if factor == 0 {
                continue;
            }
            let term = self.multiple(atom, factor);
            sum = Some(sum.map_or(term, |sum| self.add(sum, term)));
        }
        match (sum, linear.constant) {
            (Some(sum), 0) => sum,
            (Some(sum), constant) => {
                let constant = self.int(constant);
                self.add(sum, constant)
            }
            (None, constant) => self.int(constant),
        }
    }

    fn add(&mut self, a: ExprId, b: ExprId) -> ExprId {
        let range = self.binary_range(BinaryOp::Add, a, b);
        self.push(Expr::Binary(BinaryOp::Add, a, b), Scalar::I32, range)
    }

    fn multiple(&mut self, atom: ExprId, factor: i64) -> ExprId {
        if factor == 1 {
            return atom;
        }
        let factor = self.int(factor);
        let range = self.binary_range(BinaryOp::Mul, atom, factor);
        self.push(Expr::Binary(BinaryOp::Mul, atom, factor), Scalar::I32, range)
    }

    fn sum(&mut self, a: ExprId, b: ExprId, sign: i64) -> ExprId {
        let (mut left, right) = (self.linear(a), self.linear(b));
        left.terms.extend(right.terms.into_iter().map(|(atom, factor)| (atom, factor.wrapping_mul(sign))));
        left.constant = left.constant.wrapping_add(right.constant.wrapping_mul(sign));
        self.sum_of(left)
    }

    fn scaled(&mut self, a: ExprId, b: ExprId) -> Option<ExprId> {
        let (factor, other) = match (self.expr(a), self.expr(b)) {
            (&Expr::Int(_, factor), _) => (factor, b),
            (_, &Expr::Int(_, factor)) => (factor, a),
            _ => return None,
        };
        let mut linear = self.linear(other);
        linear.terms.iter_mut().for_each(|term| term.1 = term.1.wrapping_mul(factor));
        linear.constant = linear.constant.wrapping_mul(factor);
        Some(self.sum_of(linear))
    }

    /// Splits the dividend into multiples of the divisor and a rest within `0..divisor`.
    fn divided(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let &Expr::Int(_, divisor) = self.expr(b) else { return None };
        if divisor <= 0 {
            return None;
        }
        let Linear { terms, constant } = self.linear(a);
        let (even, rest): (Vec<_>, Vec<_>) = terms.into_iter().partition(|term| term.1 % divisor == 0);
        let low = constant.rem_euclid(divisor);
        let even = Linear {
            terms: even.into_iter().map(|(atom, factor)| (atom, factor / divisor)).collect(),
            constant: (constant - low) / divisor,
        };
        let trivial = even.terms.is_empty() && even.constant == 0;
        let rest = self.sum_of(Linear { terms: rest, constant: low });
        let within = self.range(rest).is_some_and(|(low, high)| low >= 0 && high < divisor);
        if !within && trivial {
            return None;
        }
        if op == BinaryOp::Mod {
            return Some(if within { rest } else { self.binary(BinaryOp::Mod, rest, b) });
        }
        let quotient = self.sum_of(even);
        let carried = if within { self.int(0) } else { self.binary(BinaryOp::Div, rest, b) };
        Some(self.sum(quotient, carried, 1))
    }
}
