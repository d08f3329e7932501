use super::dag::{Dag, Expr, ExprId};
use super::domain::Domain;
use crate::limits::{LimitError, MAX_CHOICES, MAX_EXPRESSIONS, MAX_LOADS, MAX_STATEMENTS, check_count};

impl Dag {
    /// Checks that one kernel can hold the expressions.
    ///
    /// ```
    /// use rewire_graph::pointwise::{Dag, UnaryOp};
    /// let mut dag = Dag::new();
    /// let mut x = dag.float(0.5);
    /// for _ in 0..4095 {
    ///     x = dag.unary(UnaryOp::Exp, x);
    /// }
    /// assert_eq!(dag.check_limits(), Ok(()));
    /// dag.unary(UnaryOp::Exp, x);
    /// assert!(dag.check_limits().is_err());
    /// ```
    ///
    /// # Errors
    /// [`LimitError`] if there are more expressions than [`MAX_EXPRESSIONS`], more loads than [`MAX_LOADS`], choices
    /// nested deeper than [`MAX_CHOICES`], or sides of choices with more statements than [`MAX_STATEMENTS`].
    pub fn check_limits(&self) -> Result<(), LimitError> {
        check_count("expressions", self.len(), MAX_EXPRESSIONS)?;
        let loads = self.ids().filter(|&id| matches!(self.expr(id), Expr::Load { .. })).count();
        check_count("loads", loads, MAX_LOADS)?;
        let choices = Choices.all(self).into_iter().max();
        check_count("choices within one another", choices.unwrap_or(0), MAX_CHOICES)?;
        check_count("statements within choices", self.statements(), MAX_STATEMENTS)
    }

    /// Statements of the largest choice. Shared expressions of both sides are written twice if only the selected side
    /// may run.
    fn statements(&self) -> usize {
        let reads = Reads.all(self);
        // By choice; 0 if both sides may run.
        let mut statements = vec![0usize; self.len()];
        for id in self.ids() {
            if let Expr::Select(_, a, b) = *self.expr(id)
                && (reads[a.0 as usize] || reads[b.0 as usize])
            {
                let side = |root: ExprId| self.side(root, &statements);
                statements[id.0 as usize] = side(a).saturating_add(side(b));
            }
        }
        statements.into_iter().max().unwrap_or(0)
    }

    /// Statements of a side of a choice, given the statements of the choices before it.
    fn side(&self, root: ExprId, statements: &[usize]) -> usize {
        let mut seen = vec![false; root.0 as usize + 1];
        let (mut stack, mut count) = (vec![root], 0usize);
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut seen[id.0 as usize], true) {
                continue;
            }
            count = count.saturating_add(1).saturating_add(statements[id.0 as usize]);
            match *self.expr(id) {
                Expr::Select(condition, ..) if statements[id.0 as usize] > 0 => stack.push(condition),
                ref expr => stack.extend(expr.operands()),
            }
        }
        count
    }
}

/// Nesting depth of choices.
struct Choices;

impl Domain for Choices {
    type Value = usize;

    const UNKNOWN: usize = 0;

    fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> usize) -> usize {
        let expr = dag.expr(id);
        let below = expr.operands().into_iter().map(of).max();
        below.unwrap_or(0) + usize::from(matches!(expr, Expr::Select(..)))
    }
}

/// True for an expression that loads an element or calls a function.
struct Reads;

impl Domain for Reads {
    type Value = bool;

    const UNKNOWN: bool = false;

    fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> bool) -> bool {
        let expr = dag.expr(id);
        let own = matches!(expr, Expr::Load { .. } | Expr::Sample { .. } | Expr::Uniform { .. } | Expr::Call { .. });
        own || expr.operands().into_iter().any(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn sides_that_share_what_they_read_are_counted_for_each() {
        let mut dag = Dag::new();
        let row = dag.coord(0, Some(64));
        let mut x = dag.load(0, DType::F32, vec![row]);
        for n in 0..40 {
            let [one, other] = [n, n + 1].map(|n| {
                let bound = dag.int(n);
                dag.binary(crate::pointwise::BinaryOp::Lt, row, bound)
            });
            let zero = dag.float(n as f32);
            let inner = dag.select(other, x, zero);
            x = dag.select(one, x, inner);
        }
        let error = dag.check_limits().unwrap_err().to_string();
        assert!(error.contains("statements within choices, more than"), "{error}");
    }
}
