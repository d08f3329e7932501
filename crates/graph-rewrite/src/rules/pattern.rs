use rewire_graph::op::{Constant, Input, Op};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Graph, GraphError, NodeId, Scope, Tensor, Type, Value};
use std::collections::BTreeMap;

/// A small graph with one output that is looked for in others. Its inputs match any value of their type.
pub struct Pattern {
    graph: Graph,
    root: Value,
}

/// Where a pattern was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    captures: BTreeMap<String, Value>,
}

impl Match {
    /// What each input of the pattern stands for, in the order of names.
    pub fn captures(&self) -> &BTreeMap<String, Value> {
        &self.captures
    }
}

impl Pattern {
    /// Traces a pattern for a value of type `ty` in `graph`. `None` if the function declines.
    ///
    /// # Errors
    /// [`GraphError`] of the trace.
    pub fn trace(
        graph: &Graph,
        ty: &Type,
        function: impl Fn(&Scope, &Type) -> Option<Tensor>,
    ) -> Result<Option<Self>, GraphError> {
        let scope = Scope::within(graph);
        let Some(tensor) = function(&scope, ty) else { return Ok(None) };
        let traced = scope.finish_within(&[("root", tensor)])?;
        let root = traced.outputs().first().map(|(_, value)| *value);
        Ok(root.map(|root| Self { graph: traced, root }))
    }

    /// The match whose root is `node`, if there is one. Operands of commutative operators match in either order.
    pub fn matches(&self, graph: &Graph, node: NodeId) -> Option<Match> {
        let mut bound = BTreeMap::new();
        if !self.value(graph, self.root, Value { node, port: 0 }, &mut bound) {
            return None;
        }
        let captures = bound
            .into_iter()
            .filter_map(|(pattern, value)| {
                let input = self.graph.node(pattern.node)?.op.downcast_ref::<Input>()?;
                Some((input.name.clone(), value))
            })
            .collect();
        Some(Match { captures })
    }

    fn value(&self, graph: &Graph, pattern: Value, value: Value, bound: &mut BTreeMap<Value, Value>) -> bool {
        if let Some(known) = bound.get(&pattern) {
            return *known == value;
        }
        let (Some(wanted), Some(node)) = (self.graph.node(pattern.node), graph.node(value.node)) else { return false };
        let before = bound.clone();
        bound.insert(pattern, value);
        let matched = if wanted.op.downcast_ref::<Input>().is_some() {
            self.graph.ty(pattern).zip(graph.ty(value)).is_some_and(|(a, b)| a.shape == b.shape && a.layout == b.layout)
        } else {
            same(wanted.op.as_ref(), node.op.as_ref())
                && pattern.port == value.port
                && self.operands(graph, pattern.node, value.node, bound)
        };
        if !matched {
            *bound = before;
        }
        matched
    }

    fn operands(&self, graph: &Graph, pattern: NodeId, node: NodeId, bound: &mut BTreeMap<Value, Value>) -> bool {
        let (wanted, found) = (self.graph.inputs(pattern), graph.inputs(node));
        if wanted.len() != found.len() {
            return false;
        }
        let before = bound.clone();
        if wanted.iter().zip(&found).all(|(&pattern, &value)| self.value(graph, pattern, value, bound)) {
            return true;
        }
        *bound = before;
        let commutative =
            graph.node(node).and_then(|node| node.op.downcast_ref::<BinaryOp>()).is_some_and(|op| op.is_commutative());
        commutative
            && wanted.iter().zip(found.iter().rev()).all(|(&pattern, &value)| self.value(graph, pattern, value, bound))
    }
}

/// Equal operators; constants are equal by value whatever their type is.
fn same(a: &dyn Op, b: &dyn Op) -> bool {
    match (a.downcast_ref::<Constant>(), b.downcast_ref::<Constant>()) {
        (Some(a), Some(b)) => a.tensor.shape() == b.tensor.shape() && a.tensor.to_f64() == b.tensor.to_f64(),
        _ => a.same(b),
    }
}
