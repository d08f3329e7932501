use super::masked_softmax::MaskedSoftmax;
use super::round_trip::RoundTrip;
use super::{Attempt, Match, Patch, Pattern, Rule, TracedRule};
use rewire_graph::op::{Cast, Op, Permute, Reshape};
use rewire_graph::{DType, Graph, GraphError, Layout, NodeId, Tensor};

/// Rules that make a graph smaller or canonical without changing results beyond rounding.
pub fn simplifications() -> Vec<Box<dyn Rule>> {
    let traced = [
        traced("silu", |x| x * &x.sigmoid(), |x| x.silu()),
        traced("silu of a quotient", |x| x / &(&(-x).exp() + 1.0), |x| x.silu()),
        traced("relu", |x| x.clamp(Some(0.0), None), |x| x.relu()),
        traced("times one", |x| x * 1.0, Tensor::clone),
        // A zero constant would change the sign of a negative zero.
        traced("plus negative zero", |x| x + -0.0, Tensor::clone),
        traced("minus zero", |x| x - 0.0, Tensor::clone),
        traced("divided by one", |x| x / 1.0, Tensor::clone),
        traced("double negation", |x| -&-x, Tensor::clone),
    ];
    let others: [Box<dyn Rule>; 5] = [
        Box::new(MaskedSoftmax),
        Box::new(Pair::<Reshape> { name: "reshape of a reshape", op: "reshape", merge: reshape }),
        Box::new(Pair::<Permute> { name: "permute of a permute", op: "permute", merge: permute }),
        Box::new(Pair::<Cast> { name: "cast of a cast", op: "cast", merge: cast }),
        Box::new(RoundTrip),
    ];
    // The patterns above are well typed, so `flatten` drops none.
    traced.into_iter().flatten().chain(others).collect()
}

/// A rule on a function of one float tensor.
fn traced(
    name: &str,
    pattern: impl Fn(&Tensor) -> Tensor,
    replacement: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Result<Box<dyn Rule>, GraphError> {
    let pattern = Pattern::literal(|p| vec![pattern(&p.any("x", DType::F32))])?;
    let patch =
        move |found: &Match| Patch::trace(found, |r| vec![replacement(&r.tensor("x")).cast(DType::F32)]).map(Some);
    let device = |found: &Match| {
        let result = found.results().first().and_then(|&result| found.graph().ty(result));
        result.is_some_and(|ty| ty.layout == Layout::Device)
            && result.map(|ty| &ty.shape) == found.ty("x").map(|ty| &ty.shape)
    };
    Ok(Box::new(TracedRule::of(name, pattern, patch).when("it is not a device tensor of the operand's shape", device)))
}

/// Two consecutive operators that one operator, or none, can replace.
struct Pair<T> {
    name: &'static str,
    op: &'static str,
    merge: fn(&T, &T, &Tensor) -> Option<Tensor>,
}

impl<T: Op> Rule for Pair<T> {
    fn name(&self) -> &str {
        self.name
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec![self.op.to_owned()])
    }

    fn reach(&self) -> usize {
        2
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let [outer] = graph.inputs(root)[..] else { return Ok(Attempt::Nothing) };
        let [inner] = graph.inputs(outer.node)[..] else { return Ok(Attempt::Nothing) };
        let op = |id| graph.op::<T>(id);
        let Some((first, second)) = op(outer.node).zip(op(root)) else { return Ok(Attempt::Nothing) };
        Attempt::replace(graph, root, &[inner], |_, x| (self.merge)(first, second, x.first()?))
    }
}

fn reshape(_: &Reshape, second: &Reshape, x: &Tensor) -> Option<Tensor> {
    // Regrouping through a third shape is not always possible directly.
    second.infer(&[x.ty()]).ok()?;
    Some(x.reshape(&second.shape))
}

fn permute(first: &Permute, second: &Permute, x: &Tensor) -> Option<Tensor> {
    let axes = second.axes.iter().map(|&axis| first.axes.get(axis).copied()).collect::<Option<Vec<_>>>()?;
    Some(if axes.iter().copied().eq(0..axes.len()) { x.clone() } else { x.permute(&axes) })
}

fn cast(first: &Cast, second: &Cast, x: &Tensor) -> Option<Tensor> {
    let widening =
        first.dtype == DType::F32 && x.dtype().is_float() || (x.dtype(), first.dtype) == (DType::I32, DType::I64);
    widening.then(|| x.cast(second.dtype))
}
