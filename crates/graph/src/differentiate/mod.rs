//! Reverse-mode differentiation of graphs of primitives.

mod error;

pub use error::DifferentiateError;

use crate::op::{Gradient, GradientError, Input, Op, Role};
use crate::{DType, Graph, GraphError, Layout, NodeId, Ragged, Scope, Tensor, Value};
use std::collections::{HashMap, HashSet};

/// The gradient of an output, from which the backward pass starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed<'a> {
    /// 1 in every element: the gradients are those of the sum of the output.
    One,
    /// An input of the run with this name and the type of the output.
    Input(&'a str),
}

/// Adds gradients to a graph as outputs: `grad.x` for every `x` of `wanted`, which are inputs and parameters of floats.
/// A gradient has the type of its `x`. The outputs of the graph stay.
///
/// The gradient of `x` is the gradient of the sum of all outputs of `seeds`, each multiplied by its seed. It is zero if
/// no output of `seeds` depends on `x`. No gradient passes through integers, constants and
/// [`Detach`](crate::op::Detach). The gradient of a value with several uses is the sum over its uses, in graph order.
///
/// ```
/// use rewire_graph::{DType, HostTensor, Scope, Seed, differentiate, interpret};
/// use std::collections::HashMap;
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, [3]);
/// let graph = scope.finish(&[("loss", (&x * &x * 0.5).sum(0))])?;
/// let graph = differentiate(&graph, &[("loss", Seed::One)], &["x"])?;
/// let inputs = HashMap::from([("x".to_owned(), HostTensor::f32([3], &[1.0, -2.0, 4.0])?)]);
/// let outputs = interpret(&graph, &inputs, &HashMap::new())?;
/// assert_eq!(outputs["grad.x"].to_f64(), [1.0, -2.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`DifferentiateError`] names the output, input or parameter that is missing or not of floats, or the operator
/// without a derivative.
pub fn differentiate(graph: &Graph, seeds: &[(&str, Seed<'_>)], wanted: &[&str]) -> Result<Graph, DifferentiateError> {
    graph.verify()?;
    let wanted = wanted.iter().map(|name| find(graph, name)).collect::<Result<Vec<_>, _>>()?;
    let scope = Scope::over(graph);
    let mut way = WayBack::new(graph, &scope, wanted.iter().map(|(_, value)| value.node))?;
    for (name, seed) in seeds {
        way.begin(name, *seed)?;
    }
    way.walk()?;
    let mut outputs: Vec<(String, Tensor)> =
        graph.outputs().iter().map(|(name, value)| (name.clone(), scope.value(*value))).collect();
    for (name, value) in wanted {
        let x = scope.value(value);
        let gradient = way.take(value).unwrap_or_else(|| x.scalar(DType::F32, 0.0).broadcast(x.shape()));
        outputs.push((format!("grad.{name}"), gradient.cast(x.dtype())));
    }
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    drop(way);
    Ok(scope.finish(&named)?)
}

/// The input or parameter of a name.
fn find<'n>(graph: &Graph, name: &'n str) -> Result<(&'n str, Value), DifferentiateError> {
    let named = |id: &NodeId| graph.role(*id).and_then(Role::name) == Some(name);
    let known = || {
        let names = graph.ids().filter_map(|id| graph.role(id).and_then(Role::name));
        names.map(str::to_owned).collect()
    };
    let node = graph.ids().find(named);
    let node = node.ok_or_else(|| DifferentiateError::Unknown { name: name.to_owned(), known: known() })?;
    let value = Value { node, port: 0 };
    if is_differentiable(graph, value) {
        return Ok((name, value));
    }
    let ty = graph.ty(value).map(ToString::to_string).unwrap_or_default();
    Err(DifferentiateError::NotFloats { name: name.to_owned(), ty })
}

fn is_differentiable(graph: &Graph, value: Value) -> bool {
    graph.ty(value).is_some_and(|ty| ty.layout != Layout::Host && ty.dtype.is_float() && ty.dtype.format().is_written())
}

struct WayBack<'a> {
    graph: &'a Graph,
    scope: &'a Scope,
    order: Vec<NodeId>,
    /// Nodes that depend on the wanted values through floats.
    active: HashSet<NodeId>,
    /// The gradients of each value's uses so far.
    gradients: HashMap<Value, Vec<Tensor>>,
}

impl<'a> WayBack<'a> {
    fn new(graph: &'a Graph, scope: &'a Scope, wanted: impl Iterator<Item = NodeId>) -> Result<Self, GraphError> {
        let (order, mut active) = (graph.order()?, wanted.collect::<HashSet<NodeId>>());
        for &id in &order {
            let is_reached = graph.inputs(id).iter().any(|value| active.contains(&value.node));
            if is_reached && is_differentiable(graph, Value { node: id, port: 0 }) {
                active.insert(id);
            }
        }
        Ok(Self { graph, scope, order, active, gradients: HashMap::new() })
    }

    /// Sets the gradient of an output to its seed.
    fn begin(&mut self, name: &str, seed: Seed<'_>) -> Result<(), DifferentiateError> {
        let found = self.graph.outputs().iter().find(|(own, _)| own == name);
        let known = || self.graph.outputs().iter().map(|(name, _)| name.clone()).collect();
        let (_, value) = found.ok_or_else(|| DifferentiateError::Unknown { name: name.to_owned(), known: known() })?;
        let output = self.scope.value(*value);
        if !is_differentiable(self.graph, *value) {
            return Err(DifferentiateError::NotFloats { name: name.to_owned(), ty: output.ty().to_string() });
        }
        let gradient = match seed {
            Seed::One => output.scalar(DType::F32, 1.0).broadcast(output.shape()),
            Seed::Input(name) => self.scope.apply(Input { name: name.to_owned(), ty: output.ty().clone() }, &[]),
        };
        self.gradients.entry(*value).or_default().push(gradient);
        Ok(())
    }

    /// Runs the backward pass: from the last operator to the first, gradients of results to gradients of operands.
    fn walk(&mut self) -> Result<(), DifferentiateError> {
        for position in (0..self.order.len()).rev() {
            let id = self.order[position];
            let result = Value { node: id, port: 0 };
            if !self.active.contains(&id) || self.graph.role(id).is_some_and(|role| role.name().is_some()) {
                continue;
            }
            if let Some(of) = self.take(result) {
                self.pass(id, &of)?;
            }
        }
        Ok(())
    }

    /// The gradient of a value, the sum of those of its uses.
    fn take(&mut self, value: Value) -> Option<Tensor> {
        self.gradients.remove(&value)?.into_iter().reduce(|sum, next| sum + next)
    }

    fn pass(&mut self, id: NodeId, of: &Tensor) -> Result<(), DifferentiateError> {
        let Some(node) = self.graph.node(id) else { return Ok(()) };
        let inputs = self.graph.inputs(id);
        let operands: Vec<Tensor> = inputs.iter().map(|&value| self.scope.value(value)).collect();
        let result = self.scope.value(Value { node: id, port: 0 });
        let pairs = inputs.iter().copied().chain([Value { node: id, port: 0 }]).find_map(|value| self.pairs(value));
        let at = Gradient { operands: &operands, result: &result, of, pairs: pairs.as_ref() };
        let gradients = self.scope.at(&node.path, || node.op.gradient(&at));
        if let Err(GradientError::Undefined) = &gradients
            && let Some(gradients) = self.scope.at(&node.path, || self.decomposed(node.op.as_ref(), &operands, of))?
        {
            self.add(inputs, gradients);
            return Ok(());
        }
        let gradients = gradients.map_err(|reason| DifferentiateError::Operator {
            op: node.op.name().to_owned(),
            path: node.path.clone(),
            reason,
        })?;
        self.add(inputs, gradients);
        Ok(())
    }

    /// Records the gradients of an operator's operands.
    fn add(&mut self, inputs: Vec<Value>, gradients: Vec<Option<Tensor>>) {
        for (value, gradient) in inputs.into_iter().zip(gradients) {
            if let (Some(gradient), true) = (gradient, self.active.contains(&value.node)) {
                self.gradients.entry(value).or_default().push(gradient);
            }
        }
    }

    /// The gradients of a custom operator's operands by its decomposition, if it has one.
    fn decomposed(
        &self,
        op: &dyn Op,
        operands: &[Tensor],
        of: &Tensor,
    ) -> Result<Option<Vec<Option<Tensor>>>, DifferentiateError> {
        let known: HashSet<NodeId> = self.scope.graph().ids().collect();
        let result = op.decompose(self.scope, operands).and_then(|result| result.value());
        let Some(result) = result else { return Ok(None) };
        let (graph, values) = (self.scope.graph(), operands.iter().filter_map(Tensor::value));
        let values: Vec<Value> = values.collect();
        let mut way = WayBack::new(&graph, self.scope, values.iter().map(|value| value.node))?;
        way.order.retain(|id| !known.contains(id));
        way.gradients.insert(result, vec![of.clone()]);
        way.walk()?;
        Ok(Some(values.into_iter().map(|value| way.take(value)).collect()))
    }

    /// The row and key offsets of scores: the last two operands of the operator that starts them.
    fn pairs(&self, scores: Value) -> Option<[Ragged; 2]> {
        let mut stack = vec![scores];
        while let Some(value) = stack.pop() {
            let ty = self.graph.ty(value).filter(|ty| ty.layout == Layout::Scores)?;
            let inputs = self.graph.inputs(value.node);
            let is_host = |value: &Value| self.graph.ty(*value).is_some_and(|ty| ty.layout == Layout::Host);
            if let [.., rows, keys] = inputs.as_slice()
                && is_host(rows)
                && is_host(keys)
            {
                let [_, _, all_rows, all_keys] = ty.shape.as_slice() else { return None };
                let ragged = |value: &Value, total| Ragged::of(&self.scope.value(*value), total);
                return Some([ragged(rows, all_rows), ragged(keys, all_keys)]);
            }
            let is_scores = |value: &Value| self.graph.ty(*value).is_some_and(|ty| ty.layout == Layout::Scores);
            stack.extend(inputs.into_iter().filter(is_scores).take(1));
        }
        None
    }
}
