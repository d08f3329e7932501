use rewire_graph::op::{Constant, Op};
use rewire_graph::{Dim, Graph, Symbol, Type, Value};
use std::collections::BTreeMap;

/// An occurrence of a pattern in a graph.
#[derive(Clone, Debug)]
pub struct Match<'g> {
    pub(super) graph: &'g Graph,
    pub(super) results: Vec<Value>,
    pub(super) captures: BTreeMap<String, Value>,
    pub(super) repetitions: BTreeMap<String, usize>,
    pub(super) sizes: BTreeMap<Symbol, Dim>,
}

impl<'g> Match<'g> {
    /// A match found by a rule's own code: the values to replace and the values to read.
    pub fn new(graph: &'g Graph, results: Vec<Value>, captures: BTreeMap<String, Value>) -> Self {
        Self { graph, results, captures, repetitions: BTreeMap::new(), sizes: BTreeMap::new() }
    }

    /// The graph.
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    /// The values of the pattern's results, in order.
    pub fn results(&self) -> &[Value] {
        &self.results
    }

    /// The values of the pattern's captures, by name.
    pub fn captures(&self) -> &BTreeMap<String, Value> {
        &self.captures
    }

    /// The value of a capture; `None` if it belongs to an alternative that did not match.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.captures.get(name).copied()
    }

    /// The type of a capture.
    pub fn ty(&self, name: &str) -> Option<&'g Type> {
        self.graph.ty(self.value(name)?)
    }

    /// The operator that computes a capture, if it has type `T`.
    pub fn op<T: Op>(&self, name: &str) -> Option<&'g T> {
        self.graph.op(self.value(name)?.node)
    }

    /// The attributes of the operator that computes a capture.
    pub fn attributes(&self, name: &str) -> Option<serde_json::Value> {
        Some(self.graph.node(self.value(name)?.node)?.op.attributes())
    }

    /// The value of a capture that is a scalar constant.
    pub fn number(&self, name: &str) -> Option<f64> {
        let tensor = &self.op::<Constant>(name)?.tensor;
        if tensor.len() == 1 { tensor.to_f64().first().copied() } else { None }
    }

    /// The value of a size of the pattern.
    pub fn size(&self, pattern: &Dim) -> Option<Dim> {
        super::unify::substitute(pattern, &self.sizes)
    }

    /// The number of matched repetitions of a [`PatternScope::repeat`](super::PatternScope::repeat).
    pub fn repetitions(&self, name: &str) -> usize {
        self.repetitions.get(name).copied().unwrap_or(0)
    }

    /// True if only one node reads a capture.
    pub fn is_read_once(&self, name: &str) -> bool {
        let Some(value) = self.value(name) else { return false };
        let is_output = self.graph.outputs().iter().any(|(_, output)| *output == value);
        !is_output && self.graph.users(value.node).len() == 1
    }
}
