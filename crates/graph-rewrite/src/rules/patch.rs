use super::Match;
use crate::error::PatchError;
use rewire_graph::op::{Input, Role};
use rewire_graph::{Graph, GraphError, Node, NodeId, Ordered, Scope, Tensor, Type, TypeError, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A replacement of values. It is rejected if it changes the type of a value.
#[derive(Clone, Debug)]
pub struct Patch {
    replaced: Vec<Value>,
    body: Graph,
    captures: BTreeMap<String, Value>,
}

/// The scope in which a replacement is traced.
pub struct Replacement<'a, 'g> {
    scope: Scope,
    matched: &'a Match<'g>,
}

impl<'g> Replacement<'_, 'g> {
    /// The scope, for constants, concatenations and custom operators.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The match.
    pub fn matched(&self) -> &Match<'g> {
        self.matched
    }

    /// The value of a capture. If the name does not exist, the patch fails with an error that names it.
    pub fn tensor(&self, name: &str) -> Tensor {
        self.find(name).unwrap_or_else(|| {
            let known: Vec<&str> = self.matched.captures().keys().map(String::as_str).collect();
            let expected = format!("one of the captures {}", known.join(", "));
            self.scope.fail("replacement", TypeError::new(name, expected, "an unknown name"))
        })
    }

    /// The value of a capture; `None` if it belongs to an alternative that did not match.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        Some(self.scope.capture(name, self.matched.ty(name)?))
    }
}

impl Patch {
    /// A patch with a replacement that is traced as a function of the match and returns one tensor per result of the
    /// pattern.
    ///
    /// # Errors
    /// [`GraphError`] from tracing `replacement`.
    pub fn trace(matched: &Match, replacement: impl Fn(&Replacement) -> Vec<Tensor>) -> Result<Self, GraphError> {
        let scope = Scope::within(matched.graph());
        let results = replacement(&Replacement { scope: scope.clone(), matched });
        Self::finish(scope, results, matched.results().to_vec(), matched.captures().clone())
    }

    /// A patch that replaces a value by a function of other values; `None` if the function returns `None`.
    pub(crate) fn of(
        graph: &Graph,
        replaced: Value,
        read: &[Value],
        replacement: impl FnOnce(&Scope, &[Tensor]) -> Option<Tensor>,
    ) -> Result<Option<Self>, GraphError> {
        let scope = Scope::within(graph);
        let named = || read.iter().enumerate().map(|(n, &value)| (n.to_string(), value));
        let operands = named().filter_map(|(name, value)| Some(scope.capture(&name, graph.ty(value)?)));
        let operands: Vec<Tensor> = operands.collect();
        let Some(result) = replacement(&scope, &operands) else { return Ok(None) };
        Self::finish(scope, vec![result], vec![replaced], named().ordered_map()).map(Some)
    }

    fn finish(
        scope: Scope,
        results: Vec<Tensor>,
        replaced: Vec<Value>,
        captures: BTreeMap<String, Value>,
    ) -> Result<Self, GraphError> {
        let names: Vec<String> = (0..results.len()).map(|n| n.to_string()).collect();
        let outputs: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(results).collect();
        Ok(Self { replaced, body: scope.finish_within(&outputs)?, captures })
    }

    /// True if the replacement differs from the replaced nodes in its operators or their operands.
    pub fn changes(&self, graph: &Graph) -> bool {
        let results = self.body.outputs();
        results.len() != self.replaced.len()
            || results.iter().zip(&self.replaced).any(|((_, new), &old)| !self.is_same(graph, *new, old))
    }

    fn is_same(&self, graph: &Graph, new: Value, old: Value) -> bool {
        let (Some(added), Some(node)) = (self.body.node(new.node), graph.node(old.node)) else { return false };
        if let Role::Input(input) = added.op.role() {
            return self.captures.get(&input.name) == Some(&old);
        }
        let (inputs, operands) = (self.body.inputs(new.node), graph.inputs(old.node));
        new.port == old.port
            && inputs.len() == operands.len()
            && added.op.same(node.op.as_ref())
            && inputs.into_iter().zip(operands).all(|(new, old)| self.is_same(graph, new, old))
    }

    /// The replaced values.
    pub fn replaced(&self) -> &[Value] {
        &self.replaced
    }

    /// Inserts the replacement into the graph and returns its nodes. Nodes that are no longer read stay; [`rewrite`]
    /// removes them.
    ///
    /// [`rewrite`]: super::rewrite
    ///
    /// # Errors
    /// [`PatchError`]; the graph is then unchanged.
    pub fn land(self, graph: &mut Graph) -> Result<Vec<NodeId>, PatchError> {
        self.check(graph)?;
        let mut added = vec![];
        let values = match self.add(graph, &mut added) {
            Ok(values) => values,
            Err(error) => {
                added.into_iter().for_each(|id| graph.remove(id));
                return Err(error);
            }
        };
        for (&old, &new) in self.replaced.iter().zip(&values) {
            graph.replace_except(old, new, &added);
        }
        Ok(added)
    }

    fn check(&self, graph: &Graph) -> Result<(), PatchError> {
        let (expected, actual) = (self.replaced.len(), self.body.outputs().len());
        if expected != actual {
            return Err(PatchError::Results { expected, actual });
        }
        let show = |ty: Option<&Type>| ty.map_or_else(|| "nothing".to_owned(), Type::to_string);
        for (old, (_, new)) in self.replaced.iter().zip(self.body.outputs()) {
            let (expected, actual) = (graph.ty(*old), self.body.ty(*new));
            if expected.is_none() || expected != actual {
                return Err(PatchError::Type { expected: show(expected), actual: show(actual) });
            }
        }
        if self.waits_for_itself(graph) { Err(PatchError::Cycle) } else { Ok(()) }
    }

    /// True if an operand of the replacement depends on a replaced value.
    pub(super) fn waits_for_itself(&self, graph: &Graph) -> bool {
        let mut seen: HashSet<NodeId> = self.replaced.iter().map(|value| value.node).collect();
        let replaced = seen.clone();
        let named = self.body.ids().filter_map(|id| self.captures.get(&self.body.op::<Input>(id)?.name));
        let read: Vec<NodeId> = named.map(|value| value.node).collect();
        // A replaced value may itself be an operand of the replacement of another value.
        let mut stack: Vec<NodeId> = read.iter().flat_map(|&id| graph.inputs(id)).map(|value| value.node).collect();
        if let [_] = self.replaced[..] {
            // The operands of a single result cannot depend on it.
            stack.clear();
        }
        let own = self.replaced.len() > 1 && read.iter().any(|id| replaced.contains(id));
        while let Some(id) = stack.pop() {
            if replaced.contains(&id) {
                return true;
            }
            if seen.insert(id) {
                stack.extend(graph.inputs(id).into_iter().map(|value| value.node));
            }
        }
        own
    }

    /// Adds the body and returns its outputs.
    fn add(&self, graph: &mut Graph, added: &mut Vec<NodeId>) -> Result<Vec<Value>, PatchError> {
        let path = self.replaced.first().and_then(|root| graph.node(root.node));
        let path = path.map_or_else(String::new, |node| node.path.clone());
        let mut moved: HashMap<NodeId, Value> = HashMap::new();
        let resolve = |moved: &HashMap<NodeId, Value>, value: Value| match moved.get(&value.node) {
            Some(&to) => Ok(Value { port: to.port + value.port, ..to }),
            None => Err(PatchError::Capture { name: format!("%{}", value.node.number()) }),
        };
        for id in self.body.order()? {
            let Some(node) = self.body.node(id) else { continue };
            if let Role::Input(input) = node.op.role() {
                let capture = self.captures.get(&input.name).copied();
                moved.insert(id, capture.ok_or_else(|| PatchError::Capture { name: input.name.clone() })?);
                continue;
            }
            let inputs = self.body.inputs(id).into_iter().map(|value| resolve(&moved, value));
            let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
            let known = equal_on_host(graph, node, &inputs);
            let copy = known.map_or_else(|| graph.add(node.op.clone(), &inputs, &path), Ok)?;
            moved.insert(id, Value { node: copy, port: 0 });
            added.extend(known.is_none().then_some(copy));
        }
        let results = self.body.outputs().iter().map(|(_, value)| resolve(&moved, *value));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        if results.iter().zip(&self.replaced).any(|(new, old)| new == old) {
            Err(PatchError::Same)
        } else {
            Ok(results)
        }
    }
}

/// An existing node that computes the same host value, so that a run computes it once.
fn equal_on_host(graph: &Graph, node: &Node, inputs: &[Value]) -> Option<NodeId> {
    let is_host = matches!(node.op.role(), Role::Host(_));
    let is_equal = |id: &NodeId| {
        graph.node(*id).is_some_and(|other| other.op.same(node.op.as_ref())) && graph.inputs(*id) == inputs
    };
    if !is_host {
        return None;
    }
    match inputs {
        [first, ..] => graph.users(first.node).into_iter().find(is_equal),
        [] => graph.ids().find(is_equal),
    }
}
