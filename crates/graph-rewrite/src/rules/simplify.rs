use super::{Rule, TracedRule};
use rewire_graph::op::{Cast, Permute, Reshape};
use rewire_graph::{DType, Graph, GraphError, Layout, NodeId, Scope, Tensor, Type, Value};
use std::collections::BTreeMap;

/// Rules that make a graph smaller or canonical without changing results beyond rounding.
pub fn simplifications() -> Vec<Box<dyn Rule>> {
    vec![
        traced("silu", |x| x * &x.sigmoid(), |x| x.silu()),
        traced("silu of a quotient", |x| x / &(&(-x).exp() + 1.0), |x| x.silu()),
        traced("relu", |x| x.clamp(Some(0.0), None), |x| x.relu()),
        traced("times one", |x| x * 1.0, Tensor::clone),
        traced("plus zero", |x| x + 0.0, Tensor::clone),
        traced("divided by one", |x| x / 1.0, Tensor::clone),
        traced("double negation", |x| -&-x, Tensor::clone),
        Box::new(Pair { name: "reshape of a reshape", merge: reshape }),
        Box::new(Pair { name: "permute of a permute", merge: permute }),
        Box::new(Pair { name: "cast of a cast", merge: cast }),
    ]
}

/// A rule about a function of one float tensor.
fn traced(
    name: &str,
    pattern: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
    replacement: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Box<dyn Rule> {
    Box::new(TracedRule::new(
        name,
        move |scope, ty: &Type| {
            let float = ty.dtype == DType::F32 && ty.layout == Layout::Device;
            float.then(|| pattern(&scope.input("x", ty.dtype, &ty.shape)))
        },
        move |_, captures| replacement(&captures[0]).cast(DType::F32),
    ))
}

type Merge = fn(&Graph, NodeId, NodeId, &Tensor) -> Option<Tensor>;

/// Two operators in a row that one, or none, can stand for.
struct Pair {
    name: &'static str,
    merge: Merge,
}

impl Rule for Pair {
    fn name(&self) -> &str {
        self.name
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Option<super::Patch>, GraphError> {
        let [outer] = graph.inputs(root)[..] else { return Ok(None) };
        let [inner] = graph.inputs(outer.node)[..] else { return Ok(None) };
        let captures = BTreeMap::from([("x".to_owned(), inner)]);
        let scope = Scope::within(graph);
        let Some(ty) = graph.ty(inner) else { return Ok(None) };
        if (self.merge)(graph, outer.node, root, &scope.capture("x", ty)).is_none() {
            return Ok(None);
        }
        let value = Value { node: root, port: 0 };
        super::Patch::trace(graph, value, &captures, |_, captures| {
            (self.merge)(graph, outer.node, root, &captures[0]).unwrap_or_else(|| captures[0].clone())
        })
        .map(Some)
    }
}

fn pair<T: rewire_graph::op::Op>(graph: &Graph, first: NodeId, second: NodeId) -> Option<(&T, &T)> {
    graph.node(first)?.op.downcast_ref::<T>().zip(graph.node(second)?.op.downcast_ref::<T>())
}

fn reshape(graph: &Graph, first: NodeId, second: NodeId, x: &Tensor) -> Option<Tensor> {
    let (_, second) = pair::<Reshape>(graph, first, second)?;
    // A regrouping by way of a third shape is not always one by itself.
    let alone = Reshape { shape: second.shape.clone() };
    rewire_graph::op::Op::infer(&alone, &[x.ty()]).ok()?;
    Some(x.reshape(&second.shape))
}

fn permute(graph: &Graph, first: NodeId, second: NodeId, x: &Tensor) -> Option<Tensor> {
    let (first, second) = pair::<Permute>(graph, first, second)?;
    let axes = second.axes.iter().map(|&axis| first.axes.get(axis).copied()).collect::<Option<Vec<_>>>()?;
    Some(if axes.iter().copied().eq(0..axes.len()) { x.clone() } else { x.permute(&axes) })
}

fn cast(graph: &Graph, first: NodeId, second: NodeId, x: &Tensor) -> Option<Tensor> {
    let (first, second) = pair::<Cast>(graph, first, second)?;
    let widening = matches!((x.dtype(), first.dtype), (DType::F16, DType::F32) | (DType::I32, DType::I64));
    widening.then(|| x.cast(second.dtype))
}
