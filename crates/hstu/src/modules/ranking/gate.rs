use rewire_graph::{Scope, Tensor};

/// A mixture of experts, `[R, D]` each, weighted by the softmax of `logits` `[R, experts]`: `sum_e softmax(g)_e x_e`.
pub(super) fn mixture(scope: &Scope, logits: &Tensor, experts: &[&Tensor]) -> Tensor {
    let (rows, width) = (logits.dim(0), experts.first().map_or(0, |expert| expert.width()));
    let gate = logits.softmax(1).reshape(&[rows.clone(), 1.into(), experts.len().into()]);
    gate.matmul(&scope.stack(experts, 1)).reshape(&[rows, width.into()])
}
