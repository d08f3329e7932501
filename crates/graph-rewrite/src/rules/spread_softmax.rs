use super::{Attempt, Rule};
use rewire_graph::op::{ReduceOp, ScoreBroadcast, ScoreKind, ScoreReduce, ScoreSoftmax, WeightedSum};
use rewire_graph::{DType, Graph, GraphError, Layout, NodeId, Tensor};
use std::collections::BTreeSet;

/// Rewrites the softmax of scores as a function of each score and the log-sum-exp of its query, if pair reductions
/// other than weighted sums per query read it. Such reductions do not process all keys of a query together.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpreadSoftmax;

impl Rule for SpreadSoftmax {
    fn name(&self) -> &str {
        "spread softmax"
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["score_softmax".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let is_softmax = graph.op::<ScoreSoftmax>(root).is_some();
        if !is_softmax || !is_summed_otherwise(graph, root) {
            return Ok(Attempt::Nothing);
        }
        Attempt::replace(graph, root, &graph.inputs(root), |scope, operands| {
            let [scores, keep, rows, keys] = operands else { return None };
            let kept = |x: &Tensor, other: f64| keep.select(x, &scope.scalar(DType::F32, other));
            let reduced = |x: &Tensor, op| scope.apply(ScoreReduce { op, kind: ScoreKind::Row }, &[x, rows, keys]);
            let spread = |x: &Tensor| {
                let shape = scores.shape();
                let heads = scores.ty().constant_extent(1);
                let op = ScoreBroadcast { kind: ScoreKind::Row, heads, rows: shape[2].clone(), keys: shape[3].clone() };
                scope.apply(op, &[x, rows, keys])
            };
            let largest = reduced(&kept(scores, f64::NEG_INFINITY), ReduceOp::Max);
            let total = reduced(&kept(&(scores - &spread(&largest)).exp(), 0.0), ReduceOp::Sum);
            let logarithm = &largest + &total.log();
            Some(kept(&(scores - &spread(&logarithm)).exp(), 0.0))
        })
    }
}

/// True if a pair reduction other than a weighted sum per query depends on the scores of a node.
fn is_summed_otherwise(graph: &Graph, id: NodeId) -> bool {
    let (mut seen, mut stack) = (BTreeSet::new(), vec![id]);
    while let Some(id) = stack.pop() {
        for user in graph.users(id).into_iter().filter(|user| seen.insert(*user)) {
            let Some(node) = graph.node(user) else { continue };
            if node.types.first().is_some_and(|ty| ty.layout == Layout::Scores) {
                stack.push(user);
            } else if graph.op::<WeightedSum>(user).is_none_or(|sum| sum.kind != ScoreKind::Row) {
                return true;
            }
        }
    }
    false
}
