use super::{Attempt, Rule};
use rewire_graph::op::{Broadcast, Constant, MatMul, Permute, Reduce, ReduceOp, Reshape};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, Graph, GraphError, NodeId, Value};

/// Rewrites a softmax that is 0 in rows without a finite score as a softmax over the unmasked scores, so that attention
/// skips masked tiles. Without a mask of negative infinities it becomes a plain softmax. Assumes that products are
/// finite before they are masked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaskedSoftmax;

impl Rule for MaskedSoftmax {
    fn name(&self) -> &str {
        "softmax of masked scores"
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["where".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let reader = Reader(graph);
        let Some((softmax, mask)) = reader.guarded(root) else { return Ok(Attempt::Nothing) };
        let Some(mask) = mask else {
            return Ok(Attempt::Near("no operand of the scores is a mask".to_owned()));
        };
        let (kind, captured) = match mask {
            Mask::Nothing => {
                return Attempt::replace(graph, root, &[softmax.share], |_, captured| captured.first().cloned());
            }
            Mask::Where { condition, kept, keeps } => (Some(keeps), [condition, kept]),
            Mask::Added(mask) => (None, [mask, softmax.scores]),
        };
        Attempt::replace(graph, root, &captured, |scope, captured| {
            let [mask, scores] = captured else { return None };
            let kept = match kind {
                Some(true) => mask.clone(),
                Some(false) => mask.unary(UnaryOp::Not),
                None => mask.binary_scalar(BinaryOp::Eq, f64::NEG_INFINITY).unary(UnaryOp::Not),
            };
            let or = |x, other: f64| kept.select(x, &scope.scalar(DType::F32, other));
            let exp = (scores - &or(scores, f64::NEG_INFINITY).max(softmax.axis)).exp();
            Some(or(&(&exp / &or(&exp, 0.0).sum(softmax.axis)), 0.0))
        })
    }
}

/// Scores, and their softmax along an axis.
struct Softmax {
    scores: Value,
    share: Value,
    axis: usize,
}

/// The mask of the scores: masked scores are negative infinity.
enum Mask {
    /// No score is negative infinity.
    Nothing,
    /// `kept` if `condition` equals `keeps`, else negative infinity.
    Where { condition: Value, kept: Value, keeps: bool },
    /// An addend that is negative infinity for masked scores.
    Added(Value),
}

struct Reader<'g>(&'g Graph);

impl Reader<'_> {
    /// The operands of an operator of this name.
    fn operands<const N: usize>(&self, value: Value, name: &str) -> Option<[Value; N]> {
        let node = self.0.node(value.node).filter(|node| node.op.name() == name)?;
        let is_float = node.types.first().is_some_and(|ty| matches!(ty.dtype, DType::F32 | DType::Bool));
        if is_float { self.0.inputs(value.node).try_into().ok() } else { None }
    }

    /// The operand of a reduction along an axis.
    fn reduced(&self, value: Value, op: ReduceOp) -> Option<(Value, usize)> {
        let reduce = self.0.op::<Reduce>(value.node).filter(|reduce| reduce.op == op)?;
        Some((*self.0.inputs(value.node).first()?, reduce.axis))
    }

    /// The one element of a constant, repeated or not.
    fn number(&self, value: Value) -> Option<f64> {
        if let Some(moved) = self.moved(value) {
            return self.number(moved);
        }
        let tensor = &self.0.op::<Constant>(value.node)?.tensor;
        if tensor.len() == 1 { tensor.to_f64().first().copied() } else { None }
    }

    fn is_hidden(&self, value: Value) -> bool {
        self.number(value) == Some(f64::NEG_INFINITY)
    }

    /// The operand that a comparison for equality compares with negative infinity.
    fn compared(&self, value: Value) -> Option<Value> {
        let [a, b] = self.operands(value, "eq")?;
        if self.is_hidden(b) { Some(a) } else { Some(b).filter(|_| self.is_hidden(a)) }
    }

    /// The softmax under `root`, with its mask, if the result is 0 in rows without an unmasked score.
    fn guarded(&self, root: NodeId) -> Option<(Softmax, Option<Mask>)> {
        let [none, zero, share] = self.operands(Value { node: root, port: 0 }, "where")?;
        let softmax = self.softmax(share).filter(|_| self.number(zero) == Some(0.0))?;
        let is_alike = self.0.ty(Value { node: root, port: 0 }) == self.0.ty(softmax.scores);
        let is_guard = self.operands(none, "ne") == Some([share; 2])
            || self.without_score(none) == Some((softmax.scores, softmax.axis));
        (is_alike && is_guard).then(|| {
            let mask = self.mask(softmax.scores);
            (softmax, mask)
        })
    }

    fn softmax(&self, share: Value) -> Option<Softmax> {
        let [exp, total] = self.operands(share, "div")?;
        let [shifted] = self.operands(exp, "exp")?;
        let [scores, largest] = self.operands(shifted, "sub")?;
        let (summed, axis) = self.reduced(total, ReduceOp::Sum)?;
        let is = summed == exp && self.reduced(largest, ReduceOp::Max) == Some((scores, axis));
        is.then_some(Softmax { scores, share, axis })
    }

    /// The scores and the axis of a condition that tests whether all scores are masked: by the largest score, or by
    /// whether any score is not negative infinity.
    fn without_score(&self, none: Value) -> Option<(Value, usize)> {
        if let Some(largest) = self.compared(none) {
            return self.reduced(largest, ReduceOp::Max);
        }
        let [any] = self.operands(none, "not")?;
        let [count, bound] = self.operands(any, "gt")?;
        self.number(bound).filter(|bound| (0.0..1.0).contains(bound))?;
        let (ones, axis) = self.reduced(count, ReduceOp::Max)?;
        let [shown] = self.operands(ones, "cast")?;
        let [hidden] = self.operands(shown, "not")?;
        self.compared(hidden).map(|scores| (scores, axis))
    }

    fn mask(&self, scores: Value) -> Option<Mask> {
        if self.is_product(scores) {
            return Some(Mask::Nothing);
        }
        if let Some([condition, shown, other]) = self.operands(scores, "where") {
            let keeps = self.is_hidden(other);
            let kept = if keeps { shown } else { other };
            // The selected scores must be products: scores that another mask selected may be masked as well.
            let is_mask = (keeps || self.is_hidden(shown)) && self.is_product(kept);
            return is_mask.then_some(Mask::Where { condition, kept, keeps });
        }
        let addends: [Value; 2] = self.operands(scores, "add")?;
        let (products, masks): (Vec<Value>, Vec<Value>) = addends.iter().partition(|&&addend| self.is_product(addend));
        match (products.as_slice(), masks.as_slice()) {
            (&[_], &[mask]) if self.is_finite(mask) => Some(Mask::Nothing),
            (&[_], &[mask]) => Some(Mask::Added(mask)),
            _ => None,
        }
    }

    /// True for finite numbers, selected by any condition, in any arrangement.
    fn is_finite(&self, value: Value) -> bool {
        if let Some([_, a, b]) = self.operands(value, "where") {
            return self.is_finite(a) && self.is_finite(b);
        }
        self.number(value).is_some_and(f64::is_finite) || self.moved(value).is_some_and(|moved| self.is_finite(moved))
    }

    /// The operand of an operator that only arranges or repeats elements.
    fn moved(&self, value: Value) -> Option<Value> {
        let node = value.node;
        let moves = self.0.op::<Broadcast>(node).is_some()
            || self.0.op::<Reshape>(node).is_some()
            || self.0.op::<Permute>(node).is_some();
        if moves { self.0.inputs(node).first().copied() } else { None }
    }

    /// True for a product of matrices, scaled by numbers, in any arrangement.
    fn is_product(&self, value: Value) -> bool {
        let scaled = ["mul", "div"].iter().any(|name| {
            self.operands(value, name).is_some_and(|factors: [Value; 2]| {
                factors
                    .iter()
                    .any(|&factor| self.number(factor).is_some() || self.0.op::<Constant>(factor.node).is_some())
                    && factors.iter().any(|&factor| self.is_product(factor))
            })
        });
        self.0.op::<MatMul>(value.node).is_some()
            || scaled
            || self.moved(value).is_some_and(|moved| self.is_product(moved))
    }
}
