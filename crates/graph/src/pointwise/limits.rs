use super::dag::{Dag, Expr};
use crate::limits::{LimitError, MAX_CHOICES, MAX_EXPRESSIONS, MAX_LOADS, check_count};

impl Dag {
    /// Checks that the expressions are few enough for one kernel.
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
    /// [`LimitError`] if there are more expressions than [`MAX_EXPRESSIONS`], more loads than [`MAX_LOADS`], or more choices
    /// within one another than [`MAX_CHOICES`].
    pub fn check_limits(&self) -> Result<(), LimitError> {
        check_count("expressions", self.len(), MAX_EXPRESSIONS)?;
        let loads = self.ids().filter(|&id| matches!(self.expr(id), Expr::Load { .. })).count();
        check_count("loads", loads, MAX_LOADS)?;
        check_count("choices within one another", self.choices(), MAX_CHOICES)
    }

    /// Choices within one another.
    fn choices(&self) -> usize {
        let mut depths: Vec<usize> = Vec::with_capacity(self.len());
        for id in self.ids() {
            let expr = self.expr(id);
            let below = expr.operands().iter().filter_map(|operand| depths.get(operand.0 as usize)).max();
            depths.push(below.copied().unwrap_or(0) + usize::from(matches!(expr, Expr::Select(..))));
        }
        depths.into_iter().max().unwrap_or(0)
    }
}
