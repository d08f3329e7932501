use super::{Graph, Node, NodeId, SizeSource, Value};
use crate::op::{HostOp, Input, Role};
use crate::{Dim, GraphError, Layout, Symbol};
use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::visit::NodeIndexable;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::Hash;

impl Graph {
    /// All nodes, producers before readers; a node that defines a size comes before those that use it.
    ///
    /// The order is deterministic: of the nodes that could come next, the oldest comes first.
    ///
    /// # Errors
    /// [`GraphError::Cycle`] names an operator on a cycle.
    pub fn order(&self) -> Result<Vec<NodeId>, GraphError> {
        let mut waits = vec![0usize; self.nodes.node_bound()];
        // For each node that defines sizes, the nodes that use them.
        let mut sized: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        let mut ready = BinaryHeap::new();
        for id in self.ids() {
            let mut wait = self.nodes.edges_directed(id.0, Direction::Incoming).count();
            for value in self.size_values(id).into_iter().filter(|value| value.node != id) {
                wait += 1;
                sized.entry(value.node).or_default().push(id);
            }
            waits[id.number()] = wait;
            if wait == 0 {
                ready.push(Reverse(id));
            }
        }
        let mut order = Vec::with_capacity(self.len());
        while let Some(Reverse(id)) = ready.pop() {
            order.push(id);
            let readers = self.nodes.neighbors_directed(id.0, Direction::Outgoing).map(NodeId);
            for reader in readers.chain(sized.remove(&id).unwrap_or_default()) {
                waits[reader.number()] -= 1;
                if waits[reader.number()] == 0 {
                    ready.push(Reverse(reader));
                }
            }
        }
        if order.len() < self.len() {
            let cycle = toposort(&self.nodes, None).err().and_then(|cycle| self.node(NodeId(cycle.node_id())));
            return Err(GraphError::Cycle { node: cycle.map_or("a size", |node| node.op.name()).to_owned() });
        }
        Ok(order)
    }

    /// The host values that the sizes in a node's types and attributes come from.
    pub fn size_values(&self, id: NodeId) -> Vec<Value> {
        let Some(node) = self.node(id) else { return vec![] };
        self.values_of(node.symbols.iter().copied())
    }

    /// The host values that determine symbols.
    pub fn values_of(&self, symbols: impl IntoIterator<Item = Symbol>) -> Vec<Value> {
        let source = |symbol: Symbol| match self.sizes.get(symbol.0 as usize)?.source {
            SizeSource::Total(value) | SizeSource::Scalar(value) => Some(value),
            SizeSource::Unbound | SizeSource::Extent { .. } => None,
        };
        let mut found: Vec<Value> = symbols.into_iter().filter_map(source).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Values that are the same in every run: parameters, constants, and everything computed only from them at constant
    /// sizes.
    ///
    /// # Errors
    /// As [`Graph::order`].
    pub fn fixed(&self) -> Result<HashSet<NodeId>, GraphError> {
        let mut fixed = HashSet::new();
        for id in self.order()? {
            let Some(node) = self.node(id) else { continue };
            let (op, role) = (node.op.as_ref(), node.op.role());
            let constant = |dim: &Dim| dim.as_const().is_some();
            let computed = !matches!(role, Role::Input(_) | Role::Host(_))
                && node.types.iter().all(|ty| ty.layout == Layout::Device && ty.shape.iter().all(constant))
                && op.sizes().iter().all(constant)
                && self.inputs(id).iter().all(|value| fixed.contains(&value.node));
            if role.is_fixed() || computed {
                fixed.insert(id);
            }
        }
        Ok(fixed)
    }

    /// All inputs, checks of host values and checks of ids, and everything that these and the outputs need, through operands
    /// and sizes.
    pub fn live(&self) -> HashSet<NodeId> {
        let mut stack: Vec<NodeId> = self.outputs.iter().map(|(_, value)| value.node).collect();
        stack.extend(self.ids().filter(|id| self.node(*id).is_some_and(Node::is_root)));
        let tables = self.id_inputs.iter().flat_map(|ids| symbols(&ids.rows));
        stack.extend(self.values_of(tables).into_iter().map(|value| value.node));
        self.needed_by(stack)
    }

    /// Drops the outputs for which `keep` returns false, and everything that only they need, inputs and checks of
    /// inputs included. A part of a model then runs without the inputs of the other parts.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope, SizeSource};
    /// let scope = Scope::new();
    /// let [user, item] = ["user", "item"].map(|name| scope.input(name, DType::F32, (scope.size("batch"), 2)));
    /// let mut graph = scope.finish(&[("users", user.sum(1)), ("items", item.sum(1))])?;
    /// graph.narrow(|name| name == "items");
    /// assert_eq!(graph.sizes()[0].source, SizeSource::Extent { input: "item".to_owned(), axis: 0 });
    /// assert_eq!(graph.ids().count(), 2);
    /// # Ok::<(), rewire_graph::GraphError>(())
    /// ```
    pub fn narrow(&mut self, keep: impl FnMut(&str) -> bool) {
        self.retain_outputs(keep);
        self.rebind_extents();
        let needed = self.needed_by(self.outputs.iter().map(|(_, value)| value.node));
        let is_other = |id: &NodeId| matches!(self.role(*id), Some(Role::Input(_))) && !needed.contains(id);
        let checks = self.ids().filter(|id| matches!(self.role(*id), Some(Role::Host(HostOp::Check { .. }))));
        let checked = checks.map(|id| self.needed_by([id])).filter(|all| !all.iter().any(is_other));
        let kept: HashSet<NodeId> = checked.flatten().chain(needed.iter().copied()).collect();
        let others: Vec<NodeId> = self.ids().filter(|id| !kept.contains(id)).collect();
        others.into_iter().for_each(|id| self.remove(id));
        let inputs: HashSet<String> =
            self.ids().filter_map(|id| self.op::<Input>(id)).map(|input| input.name.clone()).collect();
        self.id_inputs.retain(|ids| inputs.contains(&ids.input));
        self.states.retain(|name| inputs.contains(name));
    }

    /// Redefines sizes that are extents of inputs which no output needs as extents of inputs that an output needs; a
    /// size without such an input becomes unbound.
    pub fn rebind_extents(&mut self) {
        let needed = self.needed_by(self.outputs.iter().map(|(_, value)| value.node));
        let needed = self.ids().filter(|id| needed.contains(id)).filter_map(|id| self.op::<Input>(id).cloned());
        let inputs: Vec<Input> = needed.collect();
        self.map_size_sources(|source| match source {
            SizeSource::Extent { input, .. } if inputs.iter().all(|own| own.name != input) => SizeSource::Unbound,
            other => other,
        });
        inputs.iter().for_each(|input| self.bind_sizes(&input.name, &input.ty.shape));
    }

    /// Nodes and everything that they depend on, through operands and sizes.
    pub(super) fn needed_by(&self, nodes: impl IntoIterator<Item = NodeId>) -> HashSet<NodeId> {
        let needed = |id| self.producers(id).chain(self.size_values(id).into_iter().map(|value| value.node));
        reached(nodes, needed).into_iter().collect()
    }
}

/// Everything reachable from `starts` through `next`, each once, nearest first.
pub fn reached<T: Copy + Eq + Hash, N: IntoIterator<Item = T>>(
    starts: impl IntoIterator<Item = T>,
    mut next: impl FnMut(T) -> N,
) -> Vec<T> {
    let mut seen = HashSet::new();
    let mut found: Vec<T> = starts.into_iter().filter(|start| seen.insert(*start)).collect();
    let mut position = 0;
    while let Some(&place) = found.get(position) {
        found.extend(next(place).into_iter().filter(|other| seen.insert(*other)));
        position += 1;
    }
    found
}

fn symbols(dim: &Dim) -> impl Iterator<Item = Symbol> + '_ {
    dim.terms().map(|(symbol, _)| symbol)
}
