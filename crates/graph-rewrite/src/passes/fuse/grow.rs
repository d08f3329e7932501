use super::cost;
use super::partition::{BINDINGS, GroupId, Partition};
use crate::plan::Kernel;
use rewire_graph::op::{JaggedMatMul, MatMul, Reduce, Scores, WeightedSum};
use rewire_graph::pointwise::UnaryOp;
use rewire_graph::{Layout, NodeId, Value};
use std::collections::{BTreeSet, HashMap};

impl Partition<'_> {
    /// A group for every anchor: products, attention with its scores, reductions of one row together.
    pub(super) fn seed(&mut self) {
        for id in self.order.clone() {
            let Some(node) = self.graph.node(id) else { continue };
            let op = node.op.as_ref();
            if let Some(nodes) = self.softmax_attention(id) {
                self.create(nodes);
            } else if op.downcast_ref::<MatMul>().is_some() || op.downcast_ref::<JaggedMatMul>().is_some() {
                self.create(BTreeSet::from([id]));
            } else if op.downcast_ref::<WeightedSum>().is_some() {
                let nodes = self.scores_of(id);
                self.create(nodes);
            } else if op.downcast_ref::<Reduce>().is_some() {
                self.seed_reduction(id);
            }
        }
    }

    /// A weighted sum, its scores and what is computed from them. Masks stay free: layers share them.
    fn scores_of(&self, id: NodeId) -> BTreeSet<NodeId> {
        let mut pairs = BTreeSet::from([id]);
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            for value in self.inputs(id) {
                if self.is_scores(value.node) && pairs.insert(value.node) {
                    stack.push(value.node);
                }
            }
        }
        let is_product =
            |id: &NodeId| self.graph.node(*id).is_some_and(|node| node.op.downcast_ref::<Scores>().is_some());
        let products: BTreeSet<NodeId> = pairs.iter().copied().filter(is_product).collect();
        pairs.into_iter().filter(|&id| self.depends(vec![id], &products)).collect()
    }

    /// A product whose left operand is the softmax of another one's rows, with all that lies between.
    fn softmax_attention(&self, id: NodeId) -> Option<BTreeSet<NodeId>> {
        let is_product = |id: NodeId| self.op(id).is_some_and(|op| op.downcast_ref::<MatMul>().is_some());
        let is_reduction = |id: NodeId| self.op(id).is_some_and(|op| op.downcast_ref::<Reduce>().is_some());
        let weights = self.inputs(id).first().filter(|_| is_product(id))?.node;
        let mut between = BTreeSet::from([weights]);
        let mut products = BTreeSet::new();
        let mut stack = vec![weights];
        while let Some(id) = stack.pop() {
            if is_product(id) {
                products.insert(id);
            } else if is_reduction(id) || (!self.is_leaf(id) && self.is_elementwise(id)) {
                let producers = self.inputs(id).iter().map(|value| value.node);
                stack.extend(producers.filter(|&producer| between.insert(producer)));
            }
            if between.len() > SOFTMAX_NODES {
                return None;
            }
        }
        if products.len() != 1 || between.iter().filter(|&&id| is_reduction(id)).count() != 2 {
            return None;
        }
        let mut nodes: BTreeSet<NodeId> = between.into_iter().filter(|&id| self.depends(vec![id], &products)).collect();
        nodes.insert(id);
        self.accepts(&nodes).then_some(nodes)
    }

    pub(super) fn is_scores(&self, id: NodeId) -> bool {
        self.graph.ty(Value { node: id, port: 0 }).is_some_and(|ty| ty.layout == Layout::Scores)
    }

    /// Joins a reduction to an earlier one over the same rows that it depends on, or starts a group.
    fn seed_reduction(&mut self, id: NodeId) {
        let mut between = BTreeSet::new();
        let mut earlier = BTreeSet::new();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            for producer in self.inputs(id).iter().map(|value| value.node) {
                if let Some(group) = self.group_of(producer) {
                    earlier.insert(group);
                } else if self.is_free(producer) && between.insert(producer) {
                    stack.push(producer);
                }
            }
        }
        for group in earlier.into_iter().rev() {
            let mut nodes = self.groups[group].clone();
            nodes.extend(between.iter().copied().filter(|&free| self.depends(vec![free], &self.groups[group])));
            nodes.insert(id);
            if self.accepts(&nodes) {
                self.assign(group, nodes);
                return;
            }
        }
        let shared: BTreeSet<Value> = self.operands_of(&BTreeSet::from([id]));
        for group in (0..self.groups.len()).rev() {
            if self.operands_of(&self.groups[group]).is_disjoint(&shared) {
                continue;
            }
            let mut nodes = self.groups[group].clone();
            nodes.insert(id);
            if self.accepts(&nodes) {
                self.assign(group, nodes);
                return;
            }
        }
        self.create(BTreeSet::from([id]));
    }

    /// The device tensors that a set of nodes is computed from, through free nodes.
    fn operands_of(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<Value> {
        let mut seen = nodes.clone();
        let mut stack: Vec<NodeId> = nodes.iter().copied().collect();
        let mut operands = BTreeSet::new();
        while let Some(id) = stack.pop() {
            for &value in self.inputs(id) {
                if self.is_free(value.node) {
                    if seen.insert(value.node) {
                        stack.push(value.node);
                    }
                } else if !nodes.contains(&value.node)
                    && self.graph.ty(value).is_some_and(|ty| ty.layout == Layout::Device)
                {
                    operands.insert(value);
                }
            }
        }
        operands
    }

    /// True if the nodes form one kernel that waits for none of its own results.
    pub(super) fn accepts(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.least_bindings(nodes) <= BINDINGS
            && !nodes.iter().any(|&id| self.leaves_and_returns(nodes, id))
            && self.trial(nodes).is_ok()
    }

    /// Moves readers of a group's results into the group for as long as they fit its epilogue.
    pub(super) fn grow_epilogue(&mut self, group: GroupId) {
        while self.grow_once(group) {}
    }

    fn grow_once(&mut self, group: GroupId) -> bool {
        for result in self.results(&self.groups[group]) {
            let readers: Vec<NodeId> =
                self.users(result).iter().copied().filter(|id| !self.groups[group].contains(id)).collect();
            if readers.is_empty() || !readers.iter().all(|&id| self.is_free(id)) {
                continue;
            }
            let nodes = self.closed(group, &readers);
            if self.accepts(&nodes) {
                self.assign(group, nodes);
                return true;
            }
        }
        false
    }

    /// A group with some readers of its results, and the free nodes on the way from the group to them.
    fn closed(&self, group: GroupId, readers: &[NodeId]) -> BTreeSet<NodeId> {
        let mut nodes = self.groups[group].clone();
        nodes.extend(readers);
        let mut stack = readers.to_vec();
        while let Some(id) = stack.pop() {
            for producer in self.inputs(id).iter().map(|value| value.node) {
                if self.is_free(producer)
                    && !nodes.contains(&producer)
                    && self.depends(vec![producer], &self.groups[group])
                {
                    nodes.insert(producer);
                    stack.push(producer);
                }
            }
        }
        nodes
    }

    /// Gives every free node that is not cheap to repeat a kernel: the one that reads it, or its own.
    pub(super) fn settle(&mut self) {
        let mut kernels: HashMap<NodeId, BTreeSet<GroupId>> = HashMap::new();
        for id in self.order.clone().into_iter().rev() {
            if !self.is_free(id) {
                continue;
            }
            let mut readers = BTreeSet::new();
            for user in self.users(id) {
                match self.group_of(*user) {
                    Some(group) => readers.extend([group]),
                    None => readers.extend(kernels.get(user).into_iter().flatten().copied()),
                }
            }
            let output = self.is_output(id);
            if readers.is_empty() && !output {
                continue;
            }
            let settles = output || readers.len() == 1 || self.weight(id) > CHEAP;
            if settles && readers.iter().any(|&group| self.settle_into(group, id)) {
                continue;
            }
            let repeats = self.is_scores(id) || self.inputs(id).is_empty();
            if output || (settles && !repeats) {
                self.create(BTreeSet::from([id]));
            } else {
                kernels.insert(id, readers);
            }
        }
    }

    fn settle_into(&mut self, group: GroupId, id: NodeId) -> bool {
        let mut nodes = self.groups[group].clone();
        nodes.insert(id);
        if !self.accepts(&nodes) {
            return false;
        }
        self.assign(group, [id]);
        true
    }

    /// Norms that only one product reads move into its prologue, where that moves fewer bytes.
    pub(super) fn absorb_norms(&mut self) {
        for norm in 0..self.groups.len() {
            let reducing =
                |id: &NodeId| self.graph.node(*id).is_some_and(|node| node.op.downcast_ref::<Reduce>().is_some());
            if !self.groups[norm].iter().any(reducing) {
                continue;
            }
            let results = self.results(&self.groups[norm]);
            let readers: BTreeSet<Option<GroupId>> = results
                .iter()
                .flat_map(|&id| self.users(id))
                .filter(|id| !self.groups[norm].contains(id))
                .map(|&id| self.group_of(id))
                .collect();
            let (Some(&Some(product)), 1) = (readers.first(), readers.len()) else { continue };
            let nodes: BTreeSet<NodeId> = self.groups[norm].union(&self.groups[product]).copied().collect();
            if results.iter().any(|&id| self.is_output(id)) || !self.accepts(&nodes) {
                continue;
            }
            if matches!(self.trial(&nodes), Ok(Kernel::Matmul(kernel)) if cost::absorbs(&kernel, self.widths(&results)))
            {
                self.assign(product, nodes);
            }
        }
    }

    /// Elements in a row of all of `nodes` together.
    fn widths(&self, nodes: &[NodeId]) -> usize {
        let types = nodes.iter().filter_map(|&id| self.graph.ty(Value { node: id, port: 0 }));
        types.map(|ty| ty.width().unwrap_or(0)).sum()
    }

    /// Kernels without an anchor that walk the same points become one.
    pub(super) fn join_maps(&mut self) {
        for first in 0..self.groups.len() {
            for second in first + 1..self.groups.len() {
                let both = [first, second].map(|group| &self.groups[group]);
                if both.iter().any(|nodes| nodes.is_empty() || !self.is_map(nodes)) {
                    continue;
                }
                let nodes: BTreeSet<NodeId> = both.into_iter().flatten().copied().collect();
                if self.accepts(&nodes) {
                    self.assign(first, nodes);
                }
            }
        }
    }

    fn is_map(&self, nodes: &BTreeSet<NodeId>) -> bool {
        matches!(self.trial(nodes), Ok(Kernel::Map(_)))
    }

    /// What repeating a free node and the free nodes it is computed from costs, in loads and simple operations.
    fn weight(&self, id: NodeId) -> usize {
        let weight = |id: NodeId| match self.graph.node(id) {
            Some(node) => match node.op.name() {
                "reshape" | "permute" | "slice" | "broadcast" | "constant" | "cast" | "concat" => 0,
                name if node.op.downcast_ref::<UnaryOp>().is_some() && name != "neg" => 8,
                _ => 1,
            },
            None => 0,
        };
        if self.tensors(id) == 0 { 0 } else { self.cone(id).into_iter().map(weight).sum() }
    }
}

/// Nodes between two products up to which they are looked at as softmax attention.
const SOFTMAX_NODES: usize = 64;

/// The weight up to which a node is repeated in every kernel that reads it.
const CHEAP: usize = 6;
