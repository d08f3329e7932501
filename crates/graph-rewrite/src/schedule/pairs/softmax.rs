use super::{PairReduction, PairSum};
use rewire_graph::nest::{Nest, Output};
use rewire_graph::op::ReduceOp;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId, UnaryOp};

/// The mask, and the sum with scores instead of their softmax as its weight, if its weight is a softmax: the two passes
/// before it compute the maximum and the sum of exponentials, which nothing else reads.
pub(super) fn of(nest: &Nest, pairs: &PairReduction) -> Option<(Option<ExprId>, PairSum)> {
    let sums: Vec<&PairSum> = pairs.sums().collect();
    let (&[largest, total, sum], &[_]) = (sums.as_slice(), pairs.dots.as_slice()) else { return None };
    let dag = &nest.body.dag;
    let (mask, share) = masked(dag, sum.weight, 0.0);
    let Expr::Binary(BinaryOp::Div, exp, divisor) = *dag.expr(share) else { return None };
    let Expr::Unary(UnaryOp::Exp, shifted) = *dag.expr(exp) else { return None };
    let Expr::Binary(BinaryOp::Sub, score, shift) = *dag.expr(shifted) else { return None };
    let reduces = |sum: &PairSum, op: ReduceOp, element: ExprId, hidden: f32| {
        let same =
            if mask.is_none() { sum.weight == element } else { masked(dag, sum.weight, hidden) == (mask, element) };
        sum.op == op && sum.element.is_none() && same
    };
    let is = *dag.expr(shift) == Expr::Value(largest.value)
        && *dag.expr(divisor) == Expr::Value(total.value)
        && reduces(largest, ReduceOp::Max, score, f32::NEG_INFINITY)
        && reduces(total, ReduceOp::Sum, exp, 0.0);
    let own = 1u32 << largest.value | 1 << total.value;
    let mut read = nest.outputs.iter().flat_map(Output::roots).chain([score]);
    let apart = read.all(|id| dag.values(id) & own == 0) && mask.is_none_or(|mask| dag.values(mask) == 0);
    (is && apart && sum.element.is_some()).then_some((mask, PairSum { weight: score, ..*sum }))
}

/// Splits `mask ? weight : hidden`.
fn masked(dag: &Dag, weight: ExprId, hidden: f32) -> (Option<ExprId>, ExprId) {
    match *dag.expr(weight) {
        Expr::Select(mask, shown, other) if *dag.expr(other) == Expr::Float(hidden.to_bits()) => (Some(mask), shown),
        _ => (None, weight),
    }
}
