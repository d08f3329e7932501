use super::body::Body;
use super::pairs;
use crate::device::{BindingChunks, Target};
use crate::lower::pooled;
use crate::lower::{LoweringCache, LoweringResult};
use crate::plan::BINDINGS;
use rewire_graph::op::{MatMul, Op, Role};
use rewire_graph::{Arrange, Graph, GraphError, Layout, NodeId, Ordered, Type, Value};
use std::collections::{BTreeSet, BinaryHeap, HashSet};

/// A kernel under construction, by position.
pub(super) type GroupId = usize;

/// Largest number of operators in a kernel, to limit shader compilation time.
pub(super) const OPERATORS: usize = 192;

/// Largest number of free nodes in a tried kernel, last in order. The kernel reads earlier free nodes from memory,
/// unless a later attempt adds them.
const LOWERED_NODES: usize = 256;

/// The nodes that a kernel computes in addition to its own, and the values that it reads.
pub(super) struct Cone {
    /// Free nodes, last in order first.
    pub free: Vec<NodeId>,
    /// Values of other kernels.
    pub read: BTreeSet<Value>,
    /// Free nodes from this position on are part of the kernel.
    pub window: usize,
}

/// The assignment of nodes to kernels. Elementwise nodes without a group are computed by every kernel that reads them.
pub(super) struct Partition<'a> {
    pub graph: &'a Graph,
    pub order: Vec<NodeId>,
    pub groups: Vec<BTreeSet<NodeId>>,
    /// By group, the position in the order from which free nodes were part of the kernel when it was last lowered;
    /// `None` if the group changed since.
    tried: Vec<Option<usize>>,
    pooled: HashSet<Value>,
    /// Tables whose rows a kernel sets in place.
    pub tables: BTreeSet<Value>,
    /// Largest number of storage bindings of a kernel.
    pub most_bindings: usize,
    lowerings: LoweringCache,
    /// By [`NodeId::number`].
    facts: Vec<NodeInfo>,
}

/// Properties of a node.
#[derive(Clone, Default)]
struct NodeInfo {
    /// Its position in the order.
    position: usize,
    group: Option<GroupId>,
    users: Vec<NodeId>,
    inputs: Vec<Value>,
    is_output: bool,
    is_leaf: bool,
    is_elementwise: bool,
    /// See [`LoweringCache`].
    operator: u32,
    types: Vec<u32>,
}

impl<'a> Partition<'a> {
    pub fn new(graph: &'a Graph, lowerings: &LoweringCache, most_bindings: usize) -> Result<Self, GraphError> {
        let live = graph.live();
        let mut order = graph.order()?;
        order.retain(|id| live.contains(id));
        let count = order.iter().map(|id| id.number() + 1).max().unwrap_or(0);
        let mut facts = vec![NodeInfo { is_leaf: true, ..NodeInfo::default() }; count];
        for (position, &id) in order.iter().enumerate() {
            let Some(node) = graph.node(id) else { continue };
            let mut users = graph.users(id);
            users.dedup();
            users.retain(|user| live.contains(user));
            let is_elementwise = node.op.elementwise().is_some();
            let (inputs, is_leaf) = (graph.inputs(id), is_leaf(node.op.as_ref()));
            facts[id.number()] = NodeInfo {
                position,
                group: None,
                users,
                inputs,
                is_output: false,
                is_leaf,
                is_elementwise,
                operator: if is_leaf { 0 } else { lowerings.operator(&node.op) },
                types: node.types.iter().map(|ty| lowerings.ty(ty)).collect(),
            };
        }
        for (_, value) in graph.outputs() {
            if let Some(facts) = facts.get_mut(value.node.number()) {
                facts.is_output = true;
            }
        }
        let pooled = pooled(graph, &graph.fixed()?);
        let set = order.iter().filter(|&&id| graph.node(id).is_some_and(|node| node.op.sets_rows()));
        let tables = set.filter_map(|&id| graph.inputs(id).first().copied()).ordered_set();
        Ok(Self {
            graph,
            order,
            groups: vec![],
            tried: vec![],
            pooled,
            tables,
            most_bindings,
            lowerings: lowerings.clone(),
            facts,
        })
    }

    fn facts(&self, id: NodeId) -> Option<&NodeInfo> {
        self.facts.get(id.number())
    }

    pub fn position(&self, id: NodeId) -> Option<usize> {
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

    /// True for nodes whose values are bound or computed outside kernels.
    pub fn is_leaf(&self, id: NodeId) -> bool {
        self.facts(id).is_none_or(|facts| facts.is_leaf)
    }

    pub fn is_elementwise(&self, id: NodeId) -> bool {
        self.facts(id).is_some_and(|facts| facts.is_elementwise)
    }

    /// True for nodes that set rows of a table in place.
    pub fn sets_rows(&self, id: NodeId) -> bool {
        self.inputs(id).first().is_some_and(|table| self.tables.contains(table))
            && self.op(id).is_some_and(|op| op.sets_rows())
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
        let mut left = BTreeSet::new();
        for id in nodes {
            let Some(facts) = self.facts.get_mut(id.number()) else { continue };
            if let Some(old) = facts.group.replace(group)
                && old != group
            {
                self.groups[old].remove(&id);
                self.tried[old] = None;
                left.insert(old);
            }
            self.groups[group].insert(id);
        }
        self.tried[group] = None;
        self.arrange(group);
        left.into_iter().for_each(|old| self.arrange(old));
    }

    /// Replaces the nodes of the order from position `first` on by `nodes`.
    pub fn reorder(&mut self, first: usize, nodes: &[NodeId]) {
        let places = first..first + nodes.len();
        for (position, &id) in places.clone().zip(nodes) {
            self.order[position] = id;
            if let Some(facts) = self.facts.get_mut(id.number()) {
                facts.position = position;
            }
        }
        // The nodes that follow such a position have changed.
        for tried in self.tried.iter_mut().filter(|tried| tried.is_some_and(|last| last > first && last < places.end)) {
            *tried = None;
        }
    }

    /// Assigns a free node to a kernel that already computed it when it was last lowered, and that needs no additional
    /// results for it. Returns false if that is not known.
    pub fn keep(&mut self, group: GroupId, id: NodeId) -> bool {
        let tried = self.tried[group];
        let known = tried.is_some_and(|last| self.position(id).is_some_and(|position| position >= last));
        let inner = !self.is_output(id) && self.users(id).iter().all(|user| self.groups[group].contains(user));
        if known && inner {
            self.assign(group, [id]);
            self.tried[group] = tried;
        }
        known && inner
    }

    /// Records that the unchanged kernel was lowered.
    pub fn note_lowering(&mut self, group: GroupId) {
        let nodes = &self.groups[group];
        self.tried[group] = Some(self.cone(nodes, &self.results(nodes)).window);
    }

    /// The dependencies of `results` within a kernel that consists of `nodes` and a limited number of free nodes.
    pub fn cone(&self, nodes: &BTreeSet<NodeId>, results: &[NodeId]) -> Cone {
        let entry = |id: NodeId| self.position(id).map(|position| (position, id));
        let mut heap: BinaryHeap<(usize, NodeId)> = results.iter().filter_map(|&id| entry(id)).collect();
        let (mut inside, mut free, mut window) = (vec![], vec![], 0);
        let mut last = None;
        while let Some((position, id)) = heap.pop() {
            if last.replace(position) == Some(position) {
                continue;
            }
            if !nodes.contains(&id) {
                if free.len() == LOWERED_NODES {
                    window = position + 1;
                    break;
                }
                free.push(id);
            }
            inside.push(id);
            let producers = self.inputs(id).iter().map(|value| value.node);
            heap.extend(producers.filter(|id| nodes.contains(id) || self.is_free(*id)).filter_map(entry));
        }
        let read = inside.iter().flat_map(|&id| self.inputs(id)).copied();
        Cone { read: read.filter(|value| !self.is_inside(nodes, window, value.node)).ordered_set(), free, window }
    }

    /// Removes the nodes of a group from their kernel.
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
        results.arrange_by_key(|&id| self.position(id));
        results
    }

    /// True if a node outside `nodes` lies on a path from one of them to another.
    pub fn leaves_and_returns(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let producers = nodes.iter().flat_map(|&id| self.inputs(id)).map(|value| value.node);
        self.depends(producers.filter(|producer| !nodes.contains(producer)).collect(), nodes)
    }

    /// True if any of `starts` depends on a node of `nodes`.
    pub fn depends(&self, starts: Vec<NodeId>, nodes: &BTreeSet<NodeId>) -> bool {
        let Some(first) = self.first(nodes) else { return false };
        self.waits(starts, first, |id| nodes.contains(&id))
    }

    /// The earliest position of a node in the order.
    pub fn first(&self, nodes: &BTreeSet<NodeId>) -> Option<usize> {
        nodes.iter().filter_map(|&id| self.position(id)).min()
    }

    /// True if `is_sought` accepts one of `starts` or one of their dependencies from position `first` on.
    pub fn waits(&self, starts: Vec<NodeId>, first: usize, mut is_sought: impl FnMut(NodeId) -> bool) -> bool {
        let (mut seen, mut seen_groups) = (Seen::default(), Seen::default());
        let mut stack = starts;
        while let Some(id) = stack.pop() {
            if is_sought(id) {
                return true;
            }
            if self.position(id).is_some_and(|position| position > first && seen.insert(position - first)) {
                stack.extend(self.inputs(id).iter().map(|value| value.node));
                // A kernel depends on everything that any of its nodes depends on.
                if let Some(group) = self.group_of(id).filter(|&group| seen_groups.insert(group)) {
                    stack.extend(&self.groups[group]);
                }
            }
        }
        false
    }

    /// Lowers `nodes` with the free nodes that they depend on to one kernel, or returns the reason why that fails.
    pub fn try_lower(&self, nodes: &BTreeSet<NodeId>) -> LoweringResult {
        let results = self.results(nodes);
        self.lowered(nodes, &results, self.cone(nodes, &results).window)
    }

    /// Lowers `nodes` to one kernel that reads all other values from memory, or returns the reason why that fails.
    pub fn try_lower_alone(&self, nodes: &BTreeSet<NodeId>) -> LoweringResult {
        self.lowered(nodes, &self.results(nodes), usize::MAX)
    }

    /// Lowers `nodes` with all free nodes that they depend on, without a limit, or returns the reason why that fails.
    pub fn try_lower_whole(&self, nodes: &BTreeSet<NodeId>) -> LoweringResult {
        self.lowered(nodes, &self.results(nodes), 0)
    }

    fn lowered(&self, nodes: &BTreeSet<NodeId>, results: &[NodeId], window: usize) -> LoweringResult {
        self.kernel(&Body::new(self, nodes, results, window))
    }

    /// The kernel of a body, or the reason why it has none.
    pub fn kernel(&self, body: &Body) -> LoweringResult {
        self.lowerings.kernel(body.form(self), || body.graph(self.graph))
    }

    /// True for nodes that a kernel of `nodes` computes itself: these, and free nodes from position `window` on.
    pub fn is_inside(&self, nodes: &BTreeSet<NodeId>, window: usize, id: NodeId) -> bool {
        nodes.contains(&id) || (self.is_free(id) && self.position(id).is_some_and(|position| position >= window))
    }

    /// A number shared by nodes with equal operators.
    pub fn operator_number(&self, id: NodeId) -> u32 {
        self.facts(id).map_or(0, |facts| facts.operator)
    }

    /// A number shared by values with equal types.
    pub fn type_number(&self, value: Value) -> u32 {
        let number = self.facts(value.node).and_then(|facts| facts.types.get(value.port as usize));
        debug_assert!(number.is_some(), "every value has a type");
        number.copied().unwrap_or(0)
    }

    /// Number of storage bindings of a kernel: device operands, results, one for all pooled parameters of a type, and
    /// one for all host operands.
    pub fn bindings(&self, nodes: &BTreeSet<NodeId>) -> usize {
        let results = self.results(nodes);
        let read = self.cone(nodes, &results).read;
        self.count(self.loaded(nodes, read), self.is_attention(nodes)) + results.len()
    }

    /// True for kernels with a tile list, which is bound with the host values.
    fn is_attention(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let sums = |op: &dyn Op| pairs::side(op).is_some();
        let products = |op: &dyn Op| op.downcast_ref::<MatMul>().is_some();
        let count = |test: &dyn Fn(&dyn Op) -> bool| nodes.iter().filter(|&&id| self.op(id).is_some_and(test)).count();
        count(&sums) > 0 || count(&products) > 1
    }

    /// Number of bindings of the values that a kernel reads; `sizes` is true if it binds host values anyway.
    fn count(&self, read: impl IntoIterator<Item = Value>, sizes: bool) -> usize {
        let (mut own, mut pooled, mut host) = (0, BTreeSet::new(), sizes);
        for value in read {
            let Some(ty) = self.graph.ty(value) else { continue };
            host |= ty.layout == Layout::Host;
            if ty.layout == Layout::Device {
                match self.pooled.contains(&value) {
                    true => pooled.extend([ty.dtype]),
                    false => own += windows(ty),
                }
            }
        }
        own + pooled.len() + usize::from(host)
    }

    /// Number of storage bindings if other kernels computed all free nodes that the kernel depends on.
    pub fn least_bindings(&self, nodes: &BTreeSet<NodeId>) -> usize {
        let read = nodes.iter().flat_map(|&id| self.inputs(id)).filter(|value| !nodes.contains(&value.node));
        let outside: BTreeSet<Value> = read.map(|&value| self.source(nodes, value)).ordered_set();
        let computed =
            outside.into_iter().filter(|value| !self.is_free(value.node) || !self.inputs(value.node).is_empty());
        self.count(self.loaded(nodes, computed), false) + self.results(nodes).len()
    }

    /// Excludes tables whose rows a kernel sets, since it loads nothing from them.
    fn loaded(&self, nodes: &BTreeSet<NodeId>, read: impl IntoIterator<Item = Value>) -> impl Iterator<Item = Value> {
        let in_place = nodes.iter().any(|&id| self.sets_rows(id));
        read.into_iter().filter(move |value| !(in_place && self.tables.contains(value)))
    }

    /// True unless a kernel that sets rows of tables has other results, or loads from a table that changes.
    pub fn writes_last(&self, nodes: &BTreeSet<NodeId>) -> bool {
        if !nodes.iter().any(|&id| self.sets_rows(id)) {
            return true;
        }
        let results = self.results(nodes);
        let Cone { free, window, .. } = self.cone(nodes, &results);
        let mut others = nodes.iter().chain(&free).filter(|&&id| !self.sets_rows(id));
        window == 0
            && results.iter().all(|&id| self.sets_rows(id))
            && others.all(|&id| !self.inputs(id).iter().any(|value| self.tables.contains(value)))
    }
}

impl Partition<'_> {
    /// The origin of a value outside `nodes`, traced through free nodes with one operand.
    fn source(&self, nodes: &BTreeSet<NodeId>, value: Value) -> Value {
        let mut source = value;
        for _ in 0..LOWERED_NODES {
            match self.inputs(source.node) {
                &[producer] if self.is_free(source.node) && !nodes.contains(&producer.node) => source = producer,
                _ => break,
            }
        }
        source
    }
}

/// Number of bindings of a tensor on the WebGPU baseline. A tensor that exceeds the binding limit of a kernel counts as
/// one, since only a larger target can run its readers.
fn windows(ty: &Type) -> usize {
    let windows = BindingChunks::of_tensor(ty.dtype, &ty.shape, &Target::BASELINE);
    if windows < BINDINGS { windows } else { 1 }
}

/// True for operators whose values are bound or computed outside kernels.
fn is_leaf(op: &dyn Op) -> bool {
    match op.role() {
        Role::Constant(_) => op.elementwise().is_none(),
        role => !matches!(role, Role::Computed),
    }
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
}
