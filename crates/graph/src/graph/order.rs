use super::{Graph, NodeId, SizeSource, Value};
use crate::op::{Constant, HostOp, Input, Parameter};
use crate::{Dim, GraphError, Layout, Symbol};
use petgraph::algo::toposort;
use std::collections::{BTreeSet, HashMap, HashSet};

impl Graph {
    /// All nodes, producers before readers; a node that defines a size comes before those that use it.
    ///
    /// The order is a function of the graph alone: of the nodes that could come next, the oldest comes.
    ///
    /// # Errors
    /// [`GraphError::Cycle`] names an operator on a cycle.
    pub fn order(&self) -> Result<Vec<NodeId>, GraphError> {
        if let Err(cycle) = toposort(&self.nodes, None) {
            let node = self.node(NodeId(cycle.node_id())).map_or_else(String::new, |node| node.op.name().to_owned());
            return Err(GraphError::Cycle { node });
        }
        let mut waits: HashMap<NodeId, usize> = HashMap::new();
        let mut readers: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for id in self.ids() {
            let mut producers: BTreeSet<NodeId> = self.inputs(id).into_iter().map(|value| value.node).collect();
            producers.extend(self.size_values(id).into_iter().map(|value| value.node));
            producers.remove(&id);
            waits.insert(id, producers.len());
            for producer in producers {
                readers.entry(producer).or_default().push(id);
            }
        }
        let mut ready: BTreeSet<NodeId> = waits.iter().filter(|(_, n)| **n == 0).map(|(id, _)| *id).collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(id) = ready.pop_first() {
            order.push(id);
            for reader in readers.remove(&id).unwrap_or_default() {
                if let Some(wait) = waits.get_mut(&reader) {
                    *wait -= 1;
                    if *wait == 0 {
                        ready.insert(reader);
                    }
                }
            }
        }
        if order.len() < self.len() {
            return Err(GraphError::Cycle { node: "a size".to_owned() });
        }
        Ok(order)
    }

    /// The host values that the sizes in a node's types and attributes come from.
    pub fn size_values(&self, id: NodeId) -> Vec<Value> {
        let Some(node) = self.node(id) else { return vec![] };
        let dims = node.types.iter().flat_map(|ty| ty.shape.iter().cloned()).chain(node.op.sizes());
        self.values_of(dims.flat_map(|dim| symbols(&dim)))
    }

    /// The host values that symbols come from.
    pub fn values_of(&self, symbols: impl IntoIterator<Item = Symbol>) -> Vec<Value> {
        let found: BTreeSet<Value> = symbols
            .into_iter()
            .filter_map(|symbol| match self.sizes.get(symbol.0 as usize)?.source {
                SizeSource::Total(value) | SizeSource::Scalar(value) => Some(value),
                _ => None,
            })
            .collect();
        found.into_iter().collect()
    }

    /// Parameters and constants, and what is computed from them alone at sizes that are constants: values that are the
    /// same in every run.
    ///
    /// # Errors
    /// As [`Graph::order`].
    pub fn fixed(&self) -> Result<HashSet<NodeId>, GraphError> {
        let mut fixed = HashSet::new();
        for id in self.order()? {
            let Some(node) = self.node(id) else { continue };
            let op = node.op.as_ref();
            let source = op.downcast_ref::<Parameter>().is_some() || op.downcast_ref::<Constant>().is_some();
            let bound = op.downcast_ref::<Input>().is_some() || op.downcast_ref::<HostOp>().is_some();
            let constant = |dim: &Dim| dim.as_const().is_some();
            let computed = !bound
                && node.types.iter().all(|ty| ty.layout == Layout::Device && ty.shape.iter().all(constant))
                && op.sizes().iter().all(constant)
                && self.inputs(id).iter().all(|value| fixed.contains(&value.node));
            if source || computed {
                fixed.insert(id);
            }
        }
        Ok(fixed)
    }

    /// The inputs and what outputs need, through operands and sizes.
    pub fn live(&self) -> HashSet<NodeId> {
        let is_input = |id: &NodeId| self.node(*id).is_some_and(|node| node.op.downcast_ref::<Input>().is_some());
        let mut stack: Vec<NodeId> = self.outputs.iter().map(|(_, value)| value.node).collect();
        stack.extend(self.ids().filter(is_input));
        let mut live = HashSet::new();
        while let Some(id) = stack.pop() {
            if live.insert(id) {
                stack.extend(self.inputs(id).into_iter().map(|value| value.node));
                stack.extend(self.size_values(id).into_iter().map(|value| value.node));
            }
        }
        live
    }
}

fn symbols(dim: &Dim) -> Vec<Symbol> {
    dim.terms().map(|(symbol, _)| symbol).collect()
}
