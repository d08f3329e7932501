use crate::passes::part::Part;
use rewire_graph::{Arrange, Graph, GraphError, Layout, NodeId, Value};
use std::collections::{HashMap, HashSet, VecDeque};

/// Number of consecutive non-elementwise operators up to which readers of siblings are examined.
const DEPTH: usize = 4;

/// Largest number of readers that are examined.
const READERS: usize = 1024;

/// Largest number of producers of these readers that are examined.
const PRODUCERS: usize = 64;

/// The nodes of a graph with their readers and producers.
pub(super) struct Surroundings<'a> {
    graph: &'a Graph,
    fixed: HashSet<NodeId>,
    live: HashSet<NodeId>,
    places: HashMap<NodeId, usize>,
}

/// The nodes that may be in the kernels of siblings, as a separate graph.
pub(super) struct Region {
    pub part: Part,
}

impl<'a> Surroundings<'a> {
    pub fn new(graph: &'a Graph) -> Result<Self, GraphError> {
        let places = graph.order()?.into_iter().enumerate().map(|(place, id)| (id, place)).collect();
        Ok(Self { graph, fixed: graph.fixed()?, live: graph.live(), places })
    }

    /// The nodes that depend on siblings, up to the limits, and the producers that their kernels may include.
    pub fn of(&self, siblings: &[NodeId]) -> Result<Region, GraphError> {
        let mut nodes = self.readers(siblings);
        self.add_scores(&mut nodes);
        self.add_producers(&mut nodes);
        let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
        nodes.arrange_by_key(|id| self.places.get(id));
        let outputs = self.outputs(&nodes);
        Ok(Region { part: Part::new(self.graph, &nodes, &outputs)? })
    }

    fn is_elementwise(&self, id: NodeId) -> bool {
        self.graph.node(id).is_some_and(|node| node.op.elementwise().is_some())
    }

    /// Siblings and the nodes that depend on them.
    fn readers(&self, siblings: &[NodeId]) -> HashSet<NodeId> {
        let mut readers: HashSet<NodeId> = siblings.iter().copied().collect();
        let mut level = siblings.to_vec();
        for _ in 0..DEPTH {
            let mut next = vec![];
            while let Some(id) = level.pop() {
                for user in self.graph.users(id).into_iter().filter(|id| self.live.contains(id)) {
                    if readers.len() < READERS && readers.insert(user) {
                        if self.is_elementwise(user) { level.push(user) } else { next.push(user) }
                    }
                }
            }
            level = next;
        }
        readers
    }

    /// Adds producers of nodes: the nearest elementwise operators and reductions, operators that they may be an
    /// epilogue of, and values that are the same in every run.
    fn add_producers(&self, nodes: &mut HashSet<NodeId>) {
        let mut queue: VecDeque<NodeId> = nodes.iter().copied().collect();
        let most = nodes.len() + PRODUCERS;
        while let Some(id) = queue.pop_front() {
            for producer in self.graph.inputs(id).into_iter().map(|value| value.node) {
                let Some(node) = self.graph.node(producer).filter(|node| !node.is_root()) else { continue };
                let is_read = self.is_elementwise(producer)
                    || self.graph.node(producer).is_some_and(|node| node.op.reduced_axis().is_some());
                let is_epilogue = node.op.accumulated().is_some() && self.is_elementwise(id);
                let is_added = nodes.len() < most && (is_read || is_epilogue) && nodes.insert(producer);
                if is_added && is_read {
                    queue.push_back(producer);
                }
            }
        }
        self.add_scores(nodes);
        let mut stack: Vec<NodeId> = nodes.iter().copied().collect();
        while let Some(id) = stack.pop() {
            let producers = self.graph.inputs(id).into_iter().map(|value| value.node);
            stack.extend(producers.filter(|id| self.fixed.contains(id) && nodes.insert(*id)));
        }
    }

    /// Adds the producers and readers of scores, which no kernel stores.
    fn add_scores(&self, nodes: &mut HashSet<NodeId>) {
        let is_scores = |value: Value| self.graph.ty(value).is_some_and(|ty| ty.layout == Layout::Scores);
        let mut stack: Vec<NodeId> = nodes.iter().copied().collect();
        while let Some(id) = stack.pop() {
            let read = self.graph.inputs(id).into_iter().filter(|&value| is_scores(value)).map(|value| value.node);
            let own = is_scores(Value { node: id, port: 0 });
            let users = self.graph.users(id).into_iter().filter(|user| own && self.live.contains(user));
            stack.extend(read.chain(users).filter(|&id| nodes.insert(id)));
        }
    }

    /// Values of nodes that others read.
    fn outputs(&self, nodes: &[NodeId]) -> Vec<Value> {
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let named: HashSet<NodeId> = self.graph.outputs().iter().map(|(_, value)| value.node).collect();
        let is_read = |id: &NodeId| {
            let mut users = self.graph.users(*id).into_iter();
            named.contains(id) || users.any(|user| self.live.contains(&user) && !inside.contains(&user))
        };
        let read = nodes.iter().copied().filter(|id| !self.fixed.contains(id) && is_read(id));
        read.flat_map(|id| {
            let ports = 0..self.graph.node(id).map_or(0, |node| node.types.len() as u32);
            ports.map(move |port| Value { node: id, port })
        })
        .collect()
    }
}

impl Region {
    /// The sets of siblings that are completely in the region, as nodes of the region.
    pub fn members(&self, sets: &[Vec<NodeId>]) -> Vec<Vec<NodeId>> {
        let copy = |&node: &NodeId| self.part.copies.get(Value { node, port: 0 }).map(|value| value.node);
        sets.iter().filter_map(|set| set.iter().map(copy).collect()).collect()
    }
}
