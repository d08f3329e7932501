use super::dag::{Dag, ExprId};

/// An abstract domain for expressions: bounds, magnitudes, or the variation over neighbouring points.
///
/// ```
/// use rewire_graph::pointwise::{Dag, Domain, ExprId};
/// /// The longest way from an expression to one without operands.
/// struct Depth;
/// impl Domain for Depth {
///     type Value = usize;
///     const UNKNOWN: usize = 0;
///     fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> usize) -> usize {
///         dag.expr(id).operands().into_iter().map(|operand| of(operand) + 1).max().unwrap_or(0)
///     }
/// }
/// let mut dag = Dag::new();
/// let x = dag.coord(0, None);
/// let one = dag.int(1);
/// let sum = dag.binary(rewire_graph::pointwise::BinaryOp::Add, x, one);
/// assert_eq!(Depth.all(&dag)[sum.0 as usize], 1);
/// ```
pub trait Domain {
    /// The abstract value of an expression.
    type Value: Copy;

    /// The abstract value of an arbitrary expression.
    const UNKNOWN: Self::Value;

    /// The abstract value of an expression; `of` returns those of its operands.
    fn value(&self, dag: &Dag, id: ExprId, of: impl Fn(ExprId) -> Self::Value) -> Self::Value;

    /// Evaluates expressions, operands first. `known`, by id, holds the values of operands that were evaluated before.
    fn evaluate(&self, dag: &Dag, order: impl IntoIterator<Item = ExprId>, known: &mut [Self::Value]) {
        for id in order {
            known[id.0 as usize] = self.value(dag, id, |operand| known[operand.0 as usize]);
        }
    }

    /// The values of all expressions, by id.
    fn all(&self, dag: &Dag) -> Vec<Self::Value> {
        let mut known = vec![Self::UNKNOWN; dag.len()];
        self.evaluate(dag, dag.ids(), &mut known);
        known
    }

    /// The value of one expression.
    fn of_root(&self, dag: &Dag, root: ExprId) -> Self::Value {
        let mut known = vec![Self::UNKNOWN; dag.len()];
        self.evaluate(dag, dag.reachable(&[root]), &mut known);
        known[root.0 as usize]
    }
}
