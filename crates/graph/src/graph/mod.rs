//! The graph: typed operators on petgraph.

mod copies;
mod draw;
mod ids;
mod learned;
mod order;
mod parameters;
mod svg;
mod verify;

pub use copies::Copies;
pub use draw::Remarks;
pub use ids::Ids;
pub use order::reached;
pub use parameters::ParameterSpec;

use crate::limits::check_shape;
use crate::op::{HostOp, Op, Role, result_types};
use crate::{Dim, GraphError, Symbol, Type};
use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::{EdgeRef, IntoEdgeReferences, IntoNodeReferences};
use std::collections::HashMap;
use std::sync::Arc;

/// A node of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(NodeIndex);

impl NodeId {
    /// A stable number for drawings and error messages.
    pub fn number(self) -> usize {
        self.0.index()
    }
}

/// A result of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    /// The node.
    pub node: NodeId,
    /// The index among the results of the node.
    pub port: u32,
}

/// An operator in a graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operator.
    pub op: Arc<dyn Op>,
    /// Types of its results.
    pub types: Vec<Type>,
    /// Module path, `_stu_module._stu_layers.0`; empty at top level.
    pub path: String,
    /// True if the results are recomputed for late readers instead of kept in memory: see
    /// [`Tensor::recompute`](crate::Tensor::recompute).
    pub is_recomputed: bool,
    /// The symbols in its types and attributes, in ascending order.
    symbols: Vec<Symbol>,
}

impl Node {
    fn new(op: Arc<dyn Op>, types: Vec<Type>, path: &str) -> Self {
        let attributes = op.sizes();
        let dims = types.iter().flat_map(|ty| &ty.shape).chain(&attributes);
        let mut symbols: Vec<Symbol> = dims.flat_map(|dim| dim.terms().map(|(symbol, _)| symbol)).collect();
        symbols.sort_unstable();
        symbols.dedup();
        Self { op, types, path: path.to_owned(), is_recomputed: false, symbols }
    }

    /// True for nodes that stay even if no output needs them: inputs, which callers bind, and checks of host values.
    pub fn is_root(&self) -> bool {
        matches!(self.op.role(), Role::Input(_) | Role::Host(HostOp::Check { .. }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Edge {
    operand: u32,
    port: u32,
}

/// The source of a symbol's value.
#[derive(Clone, Debug, PartialEq)]
pub enum SizeSource {
    /// No source yet.
    Unbound,
    /// The extent of an input.
    Extent {
        /// The input's name.
        input: String,
        /// The dimension.
        axis: usize,
    },
    /// The sum of a host vector.
    Total(Value),
    /// A host scalar.
    Scalar(Value),
}

/// A size whose value a run determines.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDef {
    /// A name for messages and drawings.
    pub name: String,
    /// The source of its value.
    pub source: SizeSource,
}

/// Typed operators with named inputs, parameters and outputs.
///
/// Inputs and parameters are nodes with the ops [`crate::op::Input`] and [`crate::op::Parameter`]. A state is an input
/// whose value a session keeps between runs. If a run changes it, the graph has an output of the same name.
///
/// Clones share their nodes.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: StableDiGraph<Arc<Node>, Edge>,
    outputs: Vec<(String, Value)>,
    sizes: Vec<SizeDef>,
    id_inputs: Vec<Ids>,
    states: Vec<String>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty graph for the same model as another graph, or for a part of it. It has the sizes, id inputs and state
    /// names of the other graph. Its sizes refer to values of the other graph until they are mapped.
    pub fn of_model(other: &Self) -> Self {
        Self {
            sizes: other.sizes.clone(),
            id_inputs: other.id_inputs.clone(),
            states: other.states.clone(),
            ..Self::default()
        }
    }

    /// Adds an operator and infers its types.
    ///
    /// # Errors
    /// [`GraphError::Dangling`] if an operand does not exist, [`GraphError::Type`] if the operator does not accept its
    /// operands, [`GraphError::Limit`] if a result has more dimensions or larger extents than [`crate::limits`] allow.
    pub fn add(&mut self, op: Arc<dyn Op>, inputs: &[Value], path: &str) -> Result<NodeId, GraphError> {
        let dangling =
            |detail: String| GraphError::Dangling { node: op.name().to_owned(), path: path.to_owned(), detail };
        let types = inputs
            .iter()
            .map(|&value| self.ty(value).ok_or_else(|| dangling(format!("node {}", value.node.number()))))
            .collect::<Result<Vec<_>, _>>()?;
        let types = result_types(op.as_ref(), &types).map_err(|source| GraphError::of_type(op.name(), path, source))?;
        if let Some(source) = types.iter().find_map(|ty| check_shape(&ty.shape).err()) {
            return Err(GraphError::Limit { op: op.name().to_owned(), path: path.to_owned(), place: None, source });
        }
        Ok(self.insert(Arc::new(Node::new(op, types, path)), inputs))
    }

    /// Adds an operator of another graph, with `inputs` of this graph as operands.
    ///
    /// # Errors
    /// As [`Graph::add`]; [`GraphError::Dangling`] if `from` has no such node.
    pub fn add_copy(&mut self, from: &Self, id: NodeId, inputs: &[Value]) -> Result<NodeId, GraphError> {
        let Some(node) = from.nodes.node_weight(id.0) else {
            let (node, detail) = ("a copied operator".to_owned(), format!("node {}", id.number()));
            return Err(GraphError::Dangling { node, path: String::new(), detail });
        };
        let operands = || from.nodes.edges_directed(id.0, Direction::Incoming);
        let is_same = operands().count() == inputs.len()
            && operands().all(|edge| {
                let old = from.ty(Value { node: NodeId(edge.source()), port: edge.weight().port });
                let new = inputs.get(edge.weight().operand as usize).and_then(|&value| self.ty(value));
                old.is_some() && old == new
            });
        match is_same {
            true => Ok(self.insert(node.clone(), inputs)),
            false => self.add_instead(node, node.op.clone(), inputs),
        }
    }

    /// Adds an operator that computes in place of a node, in the same module.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn add_instead(&mut self, node: &Node, op: Arc<dyn Op>, inputs: &[Value]) -> Result<NodeId, GraphError> {
        let added = self.add(op, inputs, &node.path)?;
        self.set_recomputed(added, node.is_recomputed);
        Ok(added)
    }

    /// Sets whether the results of a node are recomputed for late readers.
    pub(crate) fn set_recomputed(&mut self, id: NodeId, is_recomputed: bool) {
        if let Some(node) = self.nodes.node_weight_mut(id.0).filter(|node| node.is_recomputed != is_recomputed) {
            Arc::make_mut(node).is_recomputed = is_recomputed;
        }
    }

    fn insert(&mut self, node: Arc<Node>, inputs: &[Value]) -> NodeId {
        let id = NodeId(self.nodes.add_node(node));
        self.attach(id, inputs);
        id
    }

    /// True if this is an unmodified clone of `other`, or all modifications were undone.
    pub fn is_unchanged(&self, other: &Self) -> bool {
        let nodes = |graph: &Self| (graph.nodes.node_count(), graph.nodes.edge_count());
        let same_nodes = || {
            self.nodes
                .node_references()
                .zip(other.nodes.node_references())
                .all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1))
        };
        let same_edges = || {
            let ends =
                |edge: petgraph::stable_graph::EdgeReference<'_, Edge>| (edge.source(), edge.target(), *edge.weight());
            self.nodes.edge_references().map(ends).eq(other.nodes.edge_references().map(ends))
        };
        nodes(self) == nodes(other)
            && self.outputs == other.outputs
            && self.states == other.states
            && self.sizes == other.sizes
            && same_nodes()
            && same_edges()
    }

    /// True if both graphs share the node itself, not an equal one.
    fn shares(&self, other: &Self, id: NodeId) -> bool {
        let nodes = self.nodes.node_weight(id.0).zip(other.nodes.node_weight(id.0));
        nodes.is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// True if both graphs have equal operators with the same operands in the same order, and the same outputs.
    pub fn same(&self, other: &Self) -> bool {
        let (Ok(order), Ok(others)) = (self.order(), other.order()) else { return false };
        let pairs: HashMap<NodeId, NodeId> = order.iter().copied().zip(others.iter().copied()).collect();
        let is_same = |a: &Value, b: &Value| a.port == b.port && pairs.get(&a.node) == Some(&b.node);
        let same_node = |(&a, &b): (&NodeId, &NodeId)| {
            let (inputs, others) = (self.inputs(a), other.inputs(b));
            let nodes = self.node(a).zip(other.node(b));
            nodes.is_some_and(|(a, b)| a.types == b.types && a.op.same(b.op.as_ref()))
                && inputs.len() == others.len()
                && inputs.iter().zip(&others).all(|(a, b)| is_same(a, b))
        };
        order.len() == others.len()
            && order.iter().zip(&others).all(same_node)
            && self.outputs.len() == other.outputs.len()
            && self.outputs.iter().zip(&other.outputs).all(|(a, b)| a.0 == b.0 && is_same(&a.1, &b.1))
    }

    /// The node with an id.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.node_weight(id.0).map(Arc::as_ref)
    }

    /// The operator of a node, if it has type `T`.
    pub fn op<T: Op>(&self, id: NodeId) -> Option<&T> {
        self.node(id)?.op.downcast_ref()
    }

    /// The role of a node's operator.
    pub fn role(&self, id: NodeId) -> Option<Role<'_>> {
        self.node(id).map(|node| node.op.role())
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Option<&Type> {
        self.node(value.node).and_then(|node| node.types.get(value.port as usize))
    }

    /// The operands of a node, in order.
    pub fn inputs(&self, id: NodeId) -> Vec<Value> {
        let mut inputs: Vec<(u32, Value)> = self
            .nodes
            .edges_directed(id.0, Direction::Incoming)
            .map(|edge| (edge.weight().operand, Value { node: NodeId(edge.source()), port: edge.weight().port }))
            .collect();
        inputs.sort_unstable_by_key(|&(operand, _)| operand);
        inputs.into_iter().map(|(_, value)| value).collect()
    }

    /// The nodes of a node's operands, in order.
    pub fn producers(&self, id: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        self.inputs(id).into_iter().map(|value| value.node)
    }

    /// The readers of a node in ascending order, once for each operand that reads it.
    pub fn users(&self, id: NodeId) -> Vec<NodeId> {
        let mut users: Vec<NodeId> =
            self.nodes.edges_directed(id.0, Direction::Outgoing).map(|edge| NodeId(edge.target())).collect();
        users.sort_unstable();
        users
    }

    /// True if the value is read by a node or is an output.
    pub fn is_read(&self, value: Value) -> bool {
        self.outputs.iter().any(|(_, output)| *output == value)
            || self.nodes.edges_directed(value.node.0, Direction::Outgoing).any(|e| e.weight().port == value.port)
    }

    /// All nodes, in the order they were added.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.node_indices().map(NodeId)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.node_count()
    }

    /// True if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.node_count() == 0
    }

    /// Named outputs in order.
    pub fn outputs(&self) -> &[(String, Value)] {
        &self.outputs
    }

    /// Adds a named output.
    ///
    /// # Errors
    /// [`GraphError::Shared`] if an output has this name.
    pub fn add_output(&mut self, name: &str, value: Value) -> Result<(), GraphError> {
        if self.outputs.iter().any(|(known, _)| known == name) {
            return Err(GraphError::Shared { kind: "output", name: name.to_owned() });
        }
        self.outputs.push((name.to_owned(), value));
        Ok(())
    }

    /// The names of the inputs that are states, in declaration order.
    pub fn states(&self) -> &[String] {
        &self.states
    }

    /// Marks an input as a state.
    pub(crate) fn add_state(&mut self, name: &str) {
        if !self.states.iter().any(|known| known == name) {
            self.states.push(name.to_owned());
        }
    }

    /// The definitions of symbols, by symbol.
    pub fn sizes(&self) -> &[SizeDef] {
        &self.sizes
    }

    /// A new symbol.
    pub fn add_size(&mut self, name: &str, source: SizeSource) -> Symbol {
        self.sizes.push(SizeDef { name: name.to_owned(), source });
        Symbol(self.sizes.len() as u32 - 1)
    }

    /// The name of a host value in messages: its input, or the function that computes it.
    pub(crate) fn host_name(&self, value: Value) -> String {
        let Some(node) = self.node(value.node) else { return String::new() };
        match (node.op.role(), self.inputs(value.node).first()) {
            (Role::Input(input), _) => input.name.clone(),
            (Role::Host(HostOp::Check { .. } | HostOp::Lengths), Some(&first)) => self.host_name(first),
            _ => format!("{} {}", node.op.name(), value.node.number()),
        }
    }

    /// Defines symbols without a source that are whole extents of `shape` as extents of the input `name`.
    pub fn bind_sizes(&mut self, name: &str, shape: &[Dim]) {
        for (axis, dim) in shape.iter().enumerate() {
            if let Some(size) = dim.as_symbol().and_then(|symbol| self.sizes.get_mut(symbol.0 as usize))
                && size.source == SizeSource::Unbound
            {
                size.source = SizeSource::Extent { input: name.to_owned(), axis };
            }
        }
    }

    /// Replaces the sources of sizes.
    pub fn map_size_sources(&mut self, mut change: impl FnMut(SizeSource) -> SizeSource) {
        for size in &mut self.sizes {
            size.source = change(std::mem::replace(&mut size.source, SizeSource::Unbound));
        }
    }

    /// Replaces the host values that sizes come from; a size without a new value becomes unbound.
    pub fn rebind_sizes(&mut self, mut moved: impl FnMut(Value) -> Option<Value>) {
        self.map_size_sources(|source| match source {
            SizeSource::Total(value) => moved(value).map_or(SizeSource::Unbound, SizeSource::Total),
            SizeSource::Scalar(value) => moved(value).map_or(SizeSource::Unbound, SizeSource::Scalar),
            other => other,
        });
    }

    /// Replaces `old` by `new` as an operand, output and source of sizes, except in the nodes `except`. Changes nothing
    /// if `new` does not exist.
    pub fn replace_except(&mut self, old: Value, new: Value, except: &[NodeId]) {
        if self.ty(new).is_none() {
            return;
        }
        let edges: Vec<_> = self
            .nodes
            .edges_directed(old.node.0, Direction::Outgoing)
            .filter(|edge| edge.weight().port == old.port && !except.contains(&NodeId(edge.target())))
            .map(|edge| (edge.id(), edge.target(), edge.weight().operand))
            .collect();
        for (edge, target, operand) in edges {
            self.nodes.remove_edge(edge);
            self.nodes.add_edge(new.node.0, target, Edge { operand, port: new.port });
        }
        for (_, output) in &mut self.outputs {
            if *output == old {
                *output = new;
            }
        }
        for size in &mut self.sizes {
            match &mut size.source {
                SizeSource::Total(value) | SizeSource::Scalar(value) if *value == old => *value = new,
                _ => {}
            }
        }
    }

    /// Removes the operands of a node, so that it no longer is a user of their producers. The node has to be removed
    /// or [attached](Self::attach) again before the graph is used.
    pub fn detach(&mut self, id: NodeId) {
        let edges: Vec<_> = self.nodes.edges_directed(id.0, Direction::Incoming).map(|edge| edge.id()).collect();
        for edge in edges {
            self.nodes.remove_edge(edge);
        }
    }

    /// Gives a detached node operands again.
    pub fn attach(&mut self, id: NodeId, inputs: &[Value]) {
        for (operand, value) in inputs.iter().enumerate() {
            self.nodes.add_edge(value.node.0, id.0, Edge { operand: operand as u32, port: value.port });
        }
    }

    /// Removes a node. Nothing may read it any more; [`Graph::verify`] checks that.
    pub fn remove(&mut self, id: NodeId) {
        self.nodes.remove_node(id.0);
    }

    /// Drops the outputs for which `keep` returns false.
    pub fn retain_outputs(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.outputs.retain(|(name, _)| keep(name));
    }
}
