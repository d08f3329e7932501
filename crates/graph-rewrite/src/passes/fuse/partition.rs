use crate::lower::{kernel, pack, packed};
use crate::plan::{Kernel, Place};
use rewire_graph::op::{Constant, Fused, HostOp, Input, Op, Parameter};
use rewire_graph::{DType, Graph, GraphError, Layout, NodeId, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A kernel in the making, by position.
pub(super) type GroupId = usize;

/// Bindings that a fused kernel may take: the WebGPU baseline.
pub(super) const BINDINGS: usize = 8;

/// Which nodes run in which kernel. Elementwise nodes without a group are computed by every kernel that reads them.
pub(super) struct Partition<'a> {
    pub graph: &'a Graph,
    pub order: Vec<NodeId>,
    pub groups: Vec<BTreeSet<NodeId>>,
    position: HashMap<NodeId, usize>,
    group_of: HashMap<NodeId, GroupId>,
    users: HashMap<NodeId, Vec<NodeId>>,
    inputs: HashMap<NodeId, Vec<Value>>,
    outputs: HashSet<NodeId>,
    packed: HashSet<Value>,
}

impl<'a> Partition<'a> {
    pub fn new(graph: &'a Graph) -> Result<Self, GraphError> {
        let order = graph.order()?;
        let mut users: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        for &id in &order {
            let mut readers = graph.users(id);
            readers.dedup();
            users.insert(id, readers);
        }
        Ok(Self {
            position: order.iter().enumerate().map(|(position, &id)| (id, position)).collect(),
            inputs: order.iter().map(|&id| (id, graph.inputs(id))).collect(),
            outputs: graph.outputs().iter().map(|(_, value)| value.node).collect(),
            packed: packed(graph, &graph.fixed()?),
            graph,
            order,
            groups: vec![],
            group_of: HashMap::new(),
            users,
        })
    }

    pub fn op(&self, id: NodeId) -> Option<&dyn Op> {
        self.graph.node(id).map(|node| node.op.as_ref())
    }

    pub fn users(&self, id: NodeId) -> &[NodeId] {
        self.users.get(&id).map_or(&[], Vec::as_slice)
    }

    pub fn inputs(&self, id: NodeId) -> &[Value] {
        self.inputs.get(&id).map_or(&[], Vec::as_slice)
    }

    pub fn group_of(&self, id: NodeId) -> Option<GroupId> {
        self.group_of.get(&id).copied()
    }

    pub fn is_output(&self, id: NodeId) -> bool {
        self.outputs.contains(&id)
    }

    /// True for nodes that are bound or computed outside of kernels.
    pub fn is_leaf(&self, id: NodeId) -> bool {
        self.graph.node(id).is_none_or(|node| {
            let op = node.op.as_ref();
            op.downcast_ref::<Input>().is_some()
                || op.downcast_ref::<Parameter>().is_some()
                || op.downcast_ref::<HostOp>().is_some()
                || op.downcast_ref::<Fused>().is_some()
                || op.downcast_ref::<Constant>().is_some_and(|_| op.elementwise().is_none())
        })
    }

    /// True for elementwise nodes that have no kernel yet.
    pub fn is_free(&self, id: NodeId) -> bool {
        !self.is_leaf(id)
            && !self.group_of.contains_key(&id)
            && self.graph.node(id).is_some_and(|node| node.op.elementwise().is_some())
    }

    pub fn create(&mut self, nodes: BTreeSet<NodeId>) -> GroupId {
        self.groups.push(BTreeSet::new());
        let group = self.groups.len() - 1;
        self.assign(group, nodes);
        group
    }

    pub fn assign(&mut self, group: GroupId, nodes: impl IntoIterator<Item = NodeId>) {
        for id in nodes {
            if let Some(old) = self.group_of.insert(id, group)
                && old != group
            {
                self.groups[old].remove(&id);
            }
            self.groups[group].insert(id);
        }
    }

    /// Takes the nodes of a group back to those without a kernel.
    pub fn dissolve(&mut self, group: GroupId) {
        for id in std::mem::take(&mut self.groups[group]) {
            self.group_of.remove(&id);
        }
        if group + 1 == self.groups.len() {
            self.groups.pop();
        }
    }

    /// The nodes of a set that others read, or that are outputs of the graph, producers first.
    pub fn results(&self, nodes: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let mut results: Vec<NodeId> = nodes
            .iter()
            .copied()
            .filter(|&id| self.is_output(id) || self.users(id).iter().any(|user| !nodes.contains(user)))
            .collect();
        results.sort_by_key(|id| self.position.get(id).copied());
        results
    }

    /// True if something outside of `nodes` lies on a path from `nodes` to `id`, `id` itself not counted.
    pub fn leaves_and_returns(&self, nodes: &BTreeSet<NodeId>, id: NodeId) -> bool {
        let outside = self.inputs(id).iter().map(|value| value.node).filter(|producer| !nodes.contains(producer));
        self.depends(outside.collect(), nodes)
    }

    /// True if any of `starts` is computed from a node of `nodes`.
    pub fn depends(&self, starts: Vec<NodeId>, nodes: &BTreeSet<NodeId>) -> bool {
        let Some(first) = nodes.iter().filter_map(|id| self.position.get(id)).min() else { return false };
        let mut seen = HashSet::new();
        let mut stack = starts;
        while let Some(id) = stack.pop() {
            if nodes.contains(&id) {
                return true;
            }
            if self.position.get(&id).is_some_and(|position| position > first) && seen.insert(id) {
                stack.extend(self.inputs(id).iter().map(|value| value.node));
                // A kernel waits for all that any of its nodes waits for.
                if let Some(group) = self.group_of(id) {
                    stack.extend(self.groups[group].iter().copied().filter(|other| !seen.contains(other)));
                }
            }
        }
        false
    }

    /// The body of a kernel that computes `results` of `nodes`, with what each operand stands for.
    pub fn body(&self, nodes: &BTreeSet<NodeId>, results: &[NodeId]) -> Result<(Graph, Vec<Value>), GraphError> {
        let mut building =
            Building { partition: self, nodes, body: Graph::new(), copies: BTreeMap::new(), operands: vec![] };
        for (number, &id) in results.iter().enumerate() {
            let value = building.copy(Value { node: id, port: 0 })?;
            building.body.add_output(&number.to_string(), value)?;
        }
        Ok((building.body, building.operands))
    }

    /// The kernel that `nodes` would become, or why they would not.
    pub fn trial(&self, nodes: &BTreeSet<NodeId>) -> Result<Kernel, String> {
        let (body, operands) = self.body(nodes, &self.results(nodes)).map_err(|error| error.to_string())?;
        let mut kernel = kernel(&body)?;
        pack(&mut kernel, &operands, &self.packed);
        Ok(kernel)
    }

    /// Storage bindings of a kernel: device operands that are read, results, one for all packed parameters of a
    /// type, and one for all host operands.
    pub fn bindings(&self, nodes: &BTreeSet<NodeId>, kernel: &Kernel) -> usize {
        let operands = &kernel.body().operands;
        let device = operands.iter().filter(|operand| operand.place == Place::Device).count();
        let packed: BTreeSet<DType> =
            operands.iter().filter(|operand| operand.place == Place::Packed).map(|operand| operand.dtype).collect();
        let host = operands.iter().any(|operand| operand.place == Place::Host);
        let sizes = host || matches!(kernel, Kernel::Attention(_));
        device + packed.len() + self.results(nodes).len() + usize::from(sizes)
    }

    /// Storage bindings if every free node that the kernel reads from were computed by another one.
    pub fn least_bindings(&self, nodes: &BTreeSet<NodeId>) -> usize {
        let read = nodes.iter().flat_map(|&id| self.inputs(id)).filter(|value| !nodes.contains(&value.node));
        let outside: BTreeSet<Value> = read.map(|&value| self.source(nodes, value)).collect();
        let (host, device): (Vec<Value>, Vec<Value>) = outside
            .into_iter()
            .filter(|value| !self.is_free(value.node) || !self.inputs(value.node).is_empty())
            .partition(|value| self.graph.ty(*value).is_some_and(|ty| ty.layout == Layout::Host));
        let types = |value: &Value| self.graph.ty(*value).filter(|ty| ty.layout == Layout::Device);
        let (packed, own): (Vec<&Value>, Vec<&Value>) =
            device.iter().filter(|value| types(value).is_some()).partition(|value| self.packed.contains(value));
        let packed: BTreeSet<DType> = packed.into_iter().filter_map(types).map(|ty| ty.dtype).collect();
        own.len() + packed.len() + self.results(nodes).len() + usize::from(!host.is_empty())
    }
}

impl Partition<'_> {
    /// What a value outside of `nodes` is computed from, through free nodes of one operand.
    fn source(&self, nodes: &BTreeSet<NodeId>, value: Value) -> Value {
        match self.inputs(value.node) {
            &[producer] if self.is_free(value.node) && !nodes.contains(&producer.node) => self.source(nodes, producer),
            _ => value,
        }
    }
}

struct Building<'a, 'b> {
    partition: &'a Partition<'b>,
    nodes: &'a BTreeSet<NodeId>,
    body: Graph,
    copies: BTreeMap<Value, Value>,
    operands: Vec<Value>,
}

impl Building<'_, '_> {
    fn copy(&mut self, value: Value) -> Result<Value, GraphError> {
        if let Some(&copy) = self.copies.get(&value) {
            return Ok(copy);
        }
        let inside = self.nodes.contains(&value.node) || self.partition.is_free(value.node);
        let copy = match self.partition.graph.node(value.node) {
            Some(node) if inside => {
                let inputs = self.partition.inputs(value.node).iter().map(|&input| self.copy(input)).collect::<Result<
                    Vec<_>,
                    _,
                >>(
                )?;
                Value { node: self.body.add(node.op.clone(), &inputs, &node.path)?, port: value.port }
            }
            _ => {
                let ty = self.partition.graph.ty(value).cloned().ok_or_else(|| GraphError::Dangling {
                    node: "a fused operator".to_owned(),
                    path: String::new(),
                    detail: format!("node {}", value.node.number()),
                })?;
                self.operands.push(value);
                Fused::add_operand(&mut self.body, self.operands.len() - 1, ty)?
            }
        };
        self.copies.insert(value, copy);
        Ok(copy)
    }
}
