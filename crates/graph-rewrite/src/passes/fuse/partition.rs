use crate::emit::{Target, Windows};
use crate::lower::{kernel, pack, packed};
use crate::plan::{Kernel, Place};
use rewire_graph::op::{Constant, Fused, HostOp, Input, Op, Parameter};
use rewire_graph::{DType, Dim, Graph, GraphError, Layout, NodeId, Value};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};

/// A kernel in the making, by position.
pub(super) type GroupId = usize;

/// Bindings that a fused kernel may take: the WebGPU baseline.
pub(super) const BINDINGS: usize = 8;

/// Operators that a kernel may have: compilers of shaders take their time with more.
pub(super) const OPERATORS: usize = 192;

/// Free nodes that a trial takes into a kernel, the last in order. It reads the others from memory: they become part of
/// the kernel only if they are settled in it, which is another trial.
const TRIAL_NODES: usize = 256;

/// Which nodes run in which kernel. Elementwise nodes without a group are computed by every kernel that reads them.
pub(super) struct Partition<'a> {
    pub graph: &'a Graph,
    pub order: Vec<NodeId>,
    pub groups: Vec<BTreeSet<NodeId>>,
    /// By group, how far down the order free nodes were part of the last trial of the kernel; `None` after a change.
    tried: Vec<Option<usize>>,
    packed: HashSet<Value>,
    /// By [`NodeId::number`].
    facts: Vec<Facts>,
}

/// What is known of a node.
#[derive(Clone, Default)]
struct Facts {
    /// Its place in the order.
    position: usize,
    group: Option<GroupId>,
    users: Vec<NodeId>,
    inputs: Vec<Value>,
    is_output: bool,
    is_leaf: bool,
    is_elementwise: bool,
}

impl<'a> Partition<'a> {
    pub fn new(graph: &'a Graph) -> Result<Self, GraphError> {
        let order = graph.order()?;
        let count = order.iter().map(|id| id.number() + 1).max().unwrap_or(0);
        let mut facts = vec![Facts { is_leaf: true, ..Facts::default() }; count];
        for (position, &id) in order.iter().enumerate() {
            let Some(node) = graph.node(id) else { continue };
            let mut users = graph.users(id);
            users.dedup();
            let is_elementwise = node.op.elementwise().is_some();
            let (inputs, is_leaf) = (graph.inputs(id), is_leaf(node.op.as_ref()));
            facts[id.number()] =
                Facts { position, group: None, users, inputs, is_output: false, is_leaf, is_elementwise };
        }
        for (_, value) in graph.outputs() {
            if let Some(facts) = facts.get_mut(value.node.number()) {
                facts.is_output = true;
            }
        }
        let packed = packed(graph, &graph.fixed()?);
        Ok(Self { graph, order, groups: vec![], tried: vec![], packed, facts })
    }

    fn facts(&self, id: NodeId) -> Option<&Facts> {
        self.facts.get(id.number())
    }

    fn position(&self, id: NodeId) -> Option<usize> {
        self.facts(id).map(|facts| facts.position)
    }

    pub fn op(&self, id: NodeId) -> Option<&dyn Op> {
        self.graph.node(id).map(|node| node.op.as_ref())
    }

    pub fn users(&self, id: NodeId) -> &[NodeId] {
        self.facts(id).map_or(&[], |facts| &facts.users)
    }

    pub fn inputs(&self, id: NodeId) -> &[Value] {
        self.facts(id).map_or(&[], |facts| &facts.inputs)
    }

    pub fn group_of(&self, id: NodeId) -> Option<GroupId> {
        self.facts(id).and_then(|facts| facts.group)
    }

    pub fn is_output(&self, id: NodeId) -> bool {
        self.facts(id).is_some_and(|facts| facts.is_output)
    }

    /// True for nodes that are bound or computed outside of kernels.
    pub fn is_leaf(&self, id: NodeId) -> bool {
        self.facts(id).is_none_or(|facts| facts.is_leaf)
    }

    pub fn is_elementwise(&self, id: NodeId) -> bool {
        self.facts(id).is_some_and(|facts| facts.is_elementwise)
    }

    /// True for elementwise nodes that have no kernel yet.
    pub fn is_free(&self, id: NodeId) -> bool {
        self.facts(id).is_some_and(|facts| !facts.is_leaf && facts.group.is_none() && facts.is_elementwise)
    }

    pub fn create(&mut self, nodes: BTreeSet<NodeId>) -> GroupId {
        self.groups.push(BTreeSet::new());
        self.tried.push(None);
        let group = self.groups.len() - 1;
        self.assign(group, nodes);
        group
    }

    pub fn assign(&mut self, group: GroupId, nodes: impl IntoIterator<Item = NodeId>) {
        for id in nodes {
            let Some(facts) = self.facts.get_mut(id.number()) else { continue };
            if let Some(old) = facts.group.replace(group)
                && old != group
            {
                self.groups[old].remove(&id);
                self.tried[old] = None;
            }
            self.groups[group].insert(id);
        }
        self.tried[group] = None;
    }

    /// Gives a free node to a kernel that already computes it, as the last trial showed, and stores no more results for
    /// it. False if that is not known.
    pub fn adopt(&mut self, group: GroupId, id: NodeId) -> bool {
        let tried = self.tried[group];
        let known = tried.is_some_and(|last| self.position(id).is_some_and(|position| position >= last));
        let inner = !self.is_output(id) && self.users(id).iter().all(|user| self.groups[group].contains(user));
        if known && inner {
            self.assign(group, [id]);
            self.tried[group] = tried;
        }
        known && inner
    }

    /// Notes that a trial of the kernel as it is succeeded.
    pub fn note_trial(&mut self, group: GroupId) {
        self.tried[group] = Some(self.window(&self.groups[group], &self.results(&self.groups[group])));
    }

    /// The position from which on a trial takes free nodes into a kernel, so that it has a bounded number of them.
    fn window(&self, nodes: &BTreeSet<NodeId>, results: &[NodeId]) -> usize {
        let entry = |&id: &NodeId| self.position(id).map(|position| (position, id));
        let mut heap: BinaryHeap<(usize, NodeId)> = results.iter().filter_map(entry).collect();
        let (mut last, mut free) = (None, 0);
        while let Some((position, id)) = heap.pop() {
            if last.replace(position) == Some(position) {
                continue;
            }
            if !nodes.contains(&id) {
                free += 1;
                if free > TRIAL_NODES {
                    return position + 1;
                }
            }
            let inside = |id: &NodeId| nodes.contains(id) || self.is_free(*id);
            heap.extend(self.inputs(id).iter().map(|value| value.node).filter(inside).filter_map(|id| entry(&id)));
        }
        0
    }

    /// Takes the nodes of a group back to those without a kernel.
    pub fn dissolve(&mut self, group: GroupId) {
        self.tried[group] = None;
        for id in std::mem::take(&mut self.groups[group]) {
            if let Some(facts) = self.facts.get_mut(id.number()) {
                facts.group = None;
            }
        }
        if group + 1 == self.groups.len() {
            self.groups.pop();
            self.tried.pop();
        }
    }

    /// The nodes of a set that others read, or that are outputs of the graph, producers first.
    pub fn results(&self, nodes: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let mut results: Vec<NodeId> = nodes
            .iter()
            .copied()
            .filter(|&id| self.is_output(id) || self.users(id).iter().any(|user| !nodes.contains(user)))
            .collect();
        results.sort_by_key(|&id| self.position(id));
        results
    }

    /// True if something outside of `nodes` lies on a path from one of them to another.
    pub fn leaves_and_returns(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let producers = nodes.iter().flat_map(|&id| self.inputs(id)).map(|value| value.node);
        self.depends(producers.filter(|producer| !nodes.contains(producer)).collect(), nodes)
    }

    /// True if any of `starts` is computed from a node of `nodes`.
    pub fn depends(&self, starts: Vec<NodeId>, nodes: &BTreeSet<NodeId>) -> bool {
        let Some(first) = nodes.iter().filter_map(|&id| self.position(id)).min() else { return false };
        let mut seen = Seen::default();
        let mut stack = starts;
        while let Some(id) = stack.pop() {
            if nodes.contains(&id) {
                return true;
            }
            if self.position(id).is_some_and(|position| position > first && seen.insert(position - first)) {
                stack.extend(self.inputs(id).iter().map(|value| value.node));
                // A kernel waits for all that any of its nodes waits for.
                if let Some(group) = self.group_of(id) {
                    let waits =
                        |id: &NodeId| self.position(*id).is_some_and(|at| at <= first || !seen.contains(at - first));
                    stack.extend(self.groups[group].iter().copied().filter(waits));
                }
            }
        }
        false
    }

    /// The body of a kernel that computes `results` of `nodes`, with what each operand stands for.
    pub fn body(&self, nodes: &BTreeSet<NodeId>, results: &[NodeId]) -> Result<(Graph, Vec<Value>), GraphError> {
        self.body_within(nodes, results, 0)
    }

    /// As [`Partition::body`]. Free nodes at positions before `window` are read from memory.
    fn body_within(
        &self,
        nodes: &BTreeSet<NodeId>,
        results: &[NodeId],
        window: usize,
    ) -> Result<(Graph, Vec<Value>), GraphError> {
        let (body, copies, operands) = (Graph::new(), BTreeMap::new(), vec![]);
        let mut building = Building { partition: self, nodes, body, copies, operands, window };
        for (number, &id) in results.iter().enumerate() {
            let value = building.copy(Value { node: id, port: 0 })?;
            building.body.add_output(&number.to_string(), value)?;
        }
        Ok((building.body, building.operands))
    }

    /// The kernel that `nodes` would become, or why they would not.
    pub fn trial(&self, nodes: &BTreeSet<NodeId>) -> Result<Kernel, String> {
        let results = self.results(nodes);
        let window = self.window(nodes, &results);
        let (body, operands) = self.body_within(nodes, &results, window).map_err(|error| error.to_string())?;
        let mut kernel = kernel(&body)?;
        pack(&mut kernel, &operands, &self.packed);
        Ok(kernel)
    }

    /// Storage bindings of a kernel: device operands that are read, results, one for all packed parameters of a
    /// type, and one for all host operands.
    pub fn bindings(&self, nodes: &BTreeSet<NodeId>, kernel: &Kernel) -> usize {
        let operands = &kernel.body().operands;
        let device = operands.iter().filter(|operand| operand.place == Place::Device);
        let device: usize = device.map(|operand| windows(operand.dtype, &operand.shape)).sum();
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
        let own: usize = own.into_iter().filter_map(types).map(|ty| windows(ty.dtype, &ty.shape)).sum();
        own + packed.len() + self.results(nodes).len() + usize::from(!host.is_empty())
    }
}

impl Partition<'_> {
    /// What a value outside of `nodes` is computed from, through free nodes of one operand.
    fn source(&self, nodes: &BTreeSet<NodeId>, value: Value) -> Value {
        let mut source = value;
        for _ in 0..TRIAL_NODES {
            match self.inputs(source.node) {
                &[producer] if self.is_free(source.node) && !nodes.contains(&producer.node) => source = producer,
                _ => break,
            }
        }
        source
    }
}

/// Bindings of a tensor: one, or more where it is larger than a binding of the WebGPU baseline.
fn windows(dtype: DType, shape: &[Dim]) -> usize {
    Windows::of_tensor(dtype, shape, &Target::BASELINE)
}

/// True for operators that are bound or computed outside of kernels.
fn is_leaf(op: &dyn Op) -> bool {
    op.downcast_ref::<Input>().is_some()
        || op.downcast_ref::<Parameter>().is_some()
        || op.downcast_ref::<HostOp>().is_some()
        || op.downcast_ref::<Fused>().is_some()
        || op.downcast_ref::<Constant>().is_some_and(|_| op.elementwise().is_none())
}

/// A set of numbers below the size of a graph.
#[derive(Default)]
struct Seen(Vec<u64>);

impl Seen {
    /// True if the number was not in the set.
    fn insert(&mut self, number: usize) -> bool {
        let (word, bit) = (number / 64, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

struct Building<'a, 'b> {
    partition: &'a Partition<'b>,
    nodes: &'a BTreeSet<NodeId>,
    body: Graph,
    copies: BTreeMap<Value, Value>,
    operands: Vec<Value>,
    window: usize,
}

impl Building<'_, '_> {
    fn copy(&mut self, value: Value) -> Result<Value, GraphError> {
        if let Some(&copy) = self.copies.get(&value) {
            return Ok(copy);
        }
        let inside = self.nodes.contains(&value.node)
            || (self.partition.is_free(value.node)
                && self.partition.position(value.node).is_some_and(|position| position >= self.window));
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
