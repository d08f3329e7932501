use super::partition::{GroupId, OPERATORS, Partition};
use super::{cost, pairs};
use crate::cost::{HardwareModel, Sizes};
use crate::error::NotLowerable;
use crate::plan::BINDINGS;
use crate::schedule::Schedule;
use rewire_graph::op::{MatMul, Reduce, Remap, SegmentReduce, Slice};
use rewire_graph::{DType, Dim, Layout, NodeId, Ordered, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

impl Partition<'_> {
    /// Starts a group for each main operator: a matmul, a sum over rows, attention with its scores, or reductions of
    /// the same row.
    pub(super) fn seed(&mut self) {
        let mut reducing = HashMap::new();
        for id in self.order.clone() {
            let Some(node) = self.graph.node(id) else { continue };
            let op = node.op.as_ref();
            if op.custom().is_some() || self.sets_rows(id) {
                self.create(BTreeSet::from([id]));
            } else if let Some(nodes) = self.softmax_attention(id) {
                self.create(nodes);
            } else if pairs::side(op).is_some() {
                self.seed_pairs(id);
            } else if self.reduced(id).is_some() {
                self.seed_reduction(id, &mut reducing);
            } else if op.accumulated().is_some() && !self.is_scores(id) {
                self.create(BTreeSet::from([id]));
            }
        }
    }

    /// Makes each operator with operands a separate kernel. Readers compute constants and scores themselves, and
    /// reductions of scores share a kernel with the scores.
    pub(super) fn separate(&mut self) {
        for id in self.order.clone() {
            let Some(node) = self.graph.node(id) else { continue };
            let is_main = node.op.custom().is_some() || self.sets_rows(id) || node.op.accumulated().is_some();
            let is_free = self.is_free(id) && (!self.inputs(id).is_empty() || self.is_output(id));
            if pairs::side(node.op.as_ref()).is_some() {
                self.seed_pairs(id);
            } else if !self.is_scores(id) && (is_main || is_free) {
                self.create(BTreeSet::from([id]));
            }
        }
    }

    /// The nodes of a matmul and of the matmul that its left operand is computed from, with all nodes between: softmax
    /// attention, or attention without a softmax if the rows and columns of the weights have symbolic sizes.
    fn softmax_attention(&self, id: NodeId) -> Option<BTreeSet<NodeId>> {
        let is_product = |id: NodeId| self.graph.op::<MatMul>(id).is_some();
        let weights = self.inputs(id).first().filter(|_| is_product(id))?.node;
        let mut between = BTreeSet::from([weights]);
        let mut products = BTreeSet::new();
        let mut stack = vec![weights];
        while let Some(id) = stack.pop() {
            if is_product(id) {
                products.insert(id);
            } else if self.is_reduction(id) || (!self.is_leaf(id) && self.is_elementwise(id)) {
                let producers = self.inputs(id).iter().map(|value| value.node);
                stack.extend(producers.filter(|&producer| between.insert(producer)));
            }
            if between.len() > SOFTMAX_NODES {
                return None;
            }
        }
        // Without a reduction or a symbolic size between them they are layers, and every row would reread their
        // weights.
        let shape = self.graph.ty(Value { node: weights, port: 0 }).map_or(&[][..], |ty| &ty.shape);
        let is_sized = shape.iter().rev().take(2).all(|extent| extent.as_const().is_none());
        if products.len() != 1 || !(is_sized || self.has_reduction(&between)) {
            return None;
        }
        let mut nodes: BTreeSet<NodeId> =
            between.into_iter().filter(|&id| self.depends(vec![id], &products)).ordered_set();
        nodes.insert(id);
        // Also tried with free nodes: a mask is recognised only with the constants that replace masked scores.
        let is_kernel = || self.accepts(&nodes) || self.fits(&nodes) && self.try_lower(&nodes).is_ok();
        (self.spares(&nodes) && is_kernel()).then_some(nodes)
    }

    /// True if all other groups can still be computed without `nodes`.
    fn spares(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let groups: BTreeSet<GroupId> = nodes.iter().filter_map(|&id| self.group_of(id)).ordered_set();
        groups.into_iter().all(|group| {
            let rest: BTreeSet<NodeId> = self.groups[group].difference(nodes).copied().ordered_set();
            rest.is_empty() || self.accepts(&rest)
        })
    }

    pub(super) fn is_scores(&self, id: NodeId) -> bool {
        self.graph.ty(Value { node: id, port: 0 }).is_some_and(|ty| ty.layout == Layout::Scores)
    }

    /// Joins a reduction to an earlier one over the same rows, which it depends on or which shares an operand;
    /// otherwise starts a group. `reducing` maps tensors to the groups that reduce them.
    fn seed_reduction(&mut self, id: NodeId, reducing: &mut HashMap<Value, Vec<GroupId>>) {
        let cone = self.cone(&BTreeSet::new(), &[id]);
        let form = self.reduced(id);
        let mut earlier: BTreeSet<GroupId> =
            cone.read.iter().filter_map(|value| self.group_of(value.node)).ordered_set();
        earlier.retain(|&group| self.reduces(group, &form));
        let depending: Vec<(GroupId, BTreeSet<NodeId>)> =
            earlier.iter().rev().take(NEIGHBOURS).map(|&group| (group, self.path(group, &cone.free))).collect();
        let all = depending.first().filter(|_| depending.len() > 1).map(|&(group, _)| {
            let all = depending.iter().flat_map(|(_, nodes)| nodes).copied();
            (group, all.collect())
        });
        let operands: Vec<Value> = cone.read.iter().copied().filter(|&value| self.is_device(value)).collect();
        let neighbours = self.neighbours(id, &form, operands.iter().filter_map(|operand| reducing.get(operand)));
        let alone = neighbours.into_iter().map(|group| (group, self.groups[group].clone()));
        let found = all.into_iter().chain(depending).chain(alone).find_map(|(group, mut nodes)| {
            nodes.insert(id);
            self.accepts(&nodes).then_some((group, nodes))
        });
        let group = match found {
            Some((group, nodes)) => {
                self.assign(group, nodes);
                group
            }
            None => self.create(BTreeSet::from([id])),
        };
        for operand in operands {
            let groups = reducing.entry(operand).or_default();
            if groups.last() != Some(&group) {
                groups.push(group);
            }
        }
    }

    /// The nodes of a group, and the nodes of `free` (last in order first) that depend on it.
    fn path(&self, group: GroupId, free: &[NodeId]) -> BTreeSet<NodeId> {
        let mut nodes = self.groups[group].clone();
        for &id in free.iter().rev() {
            if self.inputs(id).iter().any(|value| nodes.contains(&value.node)) {
                nodes.insert(id);
            }
        }
        nodes
    }

    /// The latest groups that reduce the same axis of the same shape and that no operand of the node depends on.
    fn neighbours<'g>(
        &self,
        id: NodeId,
        form: &Option<Reduced<'_>>,
        groups: impl Iterator<Item = &'g Vec<GroupId>>,
    ) -> Vec<GroupId> {
        let latest = |groups: &'g Vec<GroupId>| groups.iter().rev().take(NEIGHBOURS).copied();
        let candidates: BTreeSet<GroupId> = groups.flat_map(latest).ordered_set();
        let candidates = candidates.into_iter().rev().filter(|&group| self.reduces(group, form));
        let mut candidates: Vec<GroupId> = candidates.take(NEIGHBOURS).collect();
        let Some(first) = candidates.iter().filter_map(|&group| self.first(&self.groups[group])).min() else {
            return candidates;
        };
        let mut awaited = BTreeSet::new();
        self.waits(vec![id], first, |id| {
            awaited.extend(self.group_of(id));
            false
        });
        candidates.retain(|group| !awaited.contains(group));
        candidates
    }

    /// The shape and axis of a reduction; `None` for other nodes.
    fn reduced(&self, id: NodeId) -> Option<Reduced<'_>> {
        let (axis, samples) = match (self.graph.op::<Reduce>(id), self.graph.op::<SegmentReduce>(id), self.inputs(id)) {
            (Some(reduce), ..) => (reduce.axis, None),
            (_, Some(_), &[_, offsets]) => (0, Some(offsets)),
            _ => return None,
        };
        let input = self.inputs(id).first()?;
        Some(Reduced { shape: &self.graph.ty(*input)?.shape, axis, samples })
    }

    /// True for groups whose only main operators are reductions of this form.
    fn reduces(&self, group: GroupId, form: &Option<Reduced<'_>>) -> bool {
        let mut main_operators = self.groups[group].iter().filter(|&&id| !self.is_elementwise(id));
        !self.groups[group].is_empty() && main_operators.all(|&id| self.reduced(id) == *form)
    }

    fn is_device(&self, value: Value) -> bool {
        self.graph.ty(value).is_some_and(|ty| ty.layout == Layout::Device)
    }

    /// Why a kernel and its reader cannot be merged.
    pub(super) fn refusal(&self, nodes: &BTreeSet<NodeId>) -> String {
        let bindings = self.least_bindings(nodes);
        if nodes.len() > OPERATORS {
            format!("together they have {} operators, more than {OPERATORS}", nodes.len())
        } else if bindings > self.most_bindings {
            format!("together they need {bindings} bindings, more than {}", self.most_bindings)
        } else if self.leaves_and_returns(nodes) {
            "the result of one reaches the other through a third kernel".to_owned()
        } else {
            match self.try_lower(nodes).as_ref() {
                Ok(_) => "together they move more bytes or need more bindings".to_owned(),
                Err(reason) => reason.to_string(),
            }
        }
    }

    /// True if the nodes form one kernel that does not depend on its own results.
    pub(super) fn accepts(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.fits(nodes) && self.try_lower_alone(nodes).is_ok()
    }

    /// A necessary condition for [`Partition::accepts`] that needs no lowering.
    fn fits(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.is_small(nodes) && self.writes_last(nodes) && !self.leaves_and_returns(nodes)
    }

    pub(super) fn is_small(&self, nodes: &BTreeSet<NodeId>) -> bool {
        nodes.len() <= OPERATORS && self.least_bindings(nodes) <= self.most_bindings
    }

    /// Moves readers of a group's results into the group while they fit in its epilogue.
    pub(super) fn grow_epilogue(&mut self, group: GroupId) {
        while self.grow_once(group) {}
    }

    fn grow_once(&mut self, group: GroupId) -> bool {
        for result in self.results(&self.groups[group]) {
            if let Some(nodes) = self.grown(group, result) {
                self.assign(group, nodes);
                return true;
            }
        }
        false
    }

    /// A group with the readers of its result. Slices of a row, such as the halves that rotary positions exchange, are
    /// added with their readers up to those that join them again.
    fn grown(&self, group: GroupId, result: NodeId) -> Option<BTreeSet<NodeId>> {
        let (mut ends, mut readers) = (vec![result], vec![]);
        for level in 0..SLICE_READERS {
            let known = |id: &NodeId| self.groups[group].contains(id) || readers.contains(id);
            let next: BTreeSet<NodeId> =
                ends.iter().flat_map(|&id| self.users(id)).copied().filter(|id| !known(id)).ordered_set();
            if next.is_empty() || !next.iter().all(|&id| self.is_free(id)) {
                return None;
            }
            ends = next.into_iter().collect();
            readers.extend(&ends);
            let nodes = self.closed(group, &readers);
            if self.accepts(&nodes) {
                return Some(nodes);
            }
            let is_slice = |&id: &NodeId| self.graph.op::<Slice>(id).is_some();
            if level == 0 && !(ends.len() > 1 && ends.iter().all(is_slice)) {
                return None;
            }
        }
        None
    }

    /// A group with readers of its results, and the free nodes on all paths to them.
    pub(super) fn closed(&self, group: GroupId, readers: &[NodeId]) -> BTreeSet<NodeId> {
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

    /// Assigns every free node that is expensive to recompute to the kernel of its reader, or to a new one.
    pub(super) fn place_free(&mut self, machine: &HardwareModel) {
        let cheap = machine.operations_for_element(TILES).round() as usize;
        let sizes = Sizes::assumed(self.graph);
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
            // Operators with custom kernels read operands from memory only. Operators that set rows may have to.
            let from_memory =
                |&user: &NodeId| self.sets_rows(user) || self.op(user).is_some_and(|op| op.custom().is_some());
            let stored = output || self.users(id).iter().any(from_memory);
            let is_placed = stored || readers.len() == 1 || !self.is_cheap(id, cheap);
            let is_spread = self.is_spread(id, &sizes) && !self.is_cheap(id, cheap);
            if is_placed && !is_spread && readers.iter().any(|&group| self.place_into(group, id)) {
                continue;
            }
            let repeats = self.is_scores(id) || self.inputs(id).is_empty();
            if stored || (is_placed && !repeats) {
                self.create(BTreeSet::from([id]));
            } else {
                kernels.insert(id, readers);
            }
        }
    }

    /// True if all readers read elements several times, such as overlapping windows.
    pub(super) fn is_spread(&self, id: NodeId, sizes: &Sizes) -> bool {
        let elements = |node: NodeId| self.graph.ty(Value { node, port: 0 }).map(|ty| sizes.product(&ty.shape));
        self.users(id).iter().all(|&user| self.graph.op::<Remap>(user).is_some() && elements(user) > elements(id))
    }

    pub(super) fn place_into(&mut self, group: GroupId, id: NodeId) -> bool {
        let mut nodes = self.groups[group].clone();
        nodes.insert(id);
        if self.is_small(&nodes) && self.keep(group, id) {
            return true;
        }
        if !self.fits(&nodes) {
            return false;
        }
        match self.try_lower(&nodes).as_ref() {
            Ok(_) => {
                self.assign(group, [id]);
                self.note_lowering(group);
                true
            }
            // The kernel grows up to the size limits; the rest becomes another kernel.
            Err(NotLowerable::Limit(_)) if self.try_lower_alone(&nodes).is_ok() => {
                self.assign(group, [id]);
                true
            }
            Err(_) => false,
        }
    }

    /// True for operators that reduce an axis.
    pub(super) fn is_reduction(&self, id: NodeId) -> bool {
        self.op(id).is_some_and(|op| op.reduced_axis().is_some())
    }

    /// True for norms, and for other kernels that reduce an axis, such as softmax attention.
    pub(super) fn has_reduction(&self, nodes: &BTreeSet<NodeId>) -> bool {
        nodes.iter().any(|&id| self.is_reduction(id))
    }

    /// Moves a norm that only one matmul reads into its prologue, if that is no slower on this machine. Matmuls whose
    /// operands are f16 as `stored` are excluded: the tiles of matrix hardware would wait for the statistics.
    pub(super) fn absorb_norms(&mut self, machine: &HardwareModel, stored: impl Fn(DType) -> DType) {
        let sizes = Sizes::assumed(self.graph);
        for norm in 0..self.groups.len() {
            if !self.has_reduction(&self.groups[norm]) {
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
            let nodes: BTreeSet<NodeId> = self.groups[norm].union(&self.groups[product]).copied().ordered_set();
            let is_bound = results.iter().any(|&id| self.is_output(id))
                || self.allows_f16_operands(product, &stored) == Some(true);
            if is_bound || !self.accepts(&nodes) {
                continue;
            }
            let [joined, alone, reading] =
                [&nodes, &self.groups[norm], &self.groups[product]].map(|nodes| self.try_lower(nodes));
            if let (Ok(joined), Ok(alone), Ok(reading)) = (&*joined, &*alone, &*reading)
                && matches!(joined.schedule(), Some(Schedule::Product(_)))
                && cost::absorbs(machine, &sizes, joined, [alone, reading])
            {
                self.assign(product, nodes);
            }
        }
    }

    /// Merges kernels without a main operator if they loop over the same points or one reads the other.
    pub(super) fn join_maps(&mut self) {
        let mut walks: BTreeMap<GroupId, Vec<Dim>> = BTreeMap::new();
        for group in 0..self.groups.len() {
            if let Some(shape) = self.walk(&self.groups[group]) {
                walks.insert(group, shape);
            }
        }
        let mut alike: HashMap<&[Dim], Vec<GroupId>> = HashMap::new();
        for (&group, extents) in &walks {
            alike.entry(extents).or_default().push(group);
        }
        for (&first, extents) in &walks {
            let alike = alike.get(extents.as_slice()).map_or(&[][..], Vec::as_slice);
            let next = alike.iter().copied().filter(|&second| second > first && !self.groups[second].is_empty());
            let connected = self.connected(first).into_iter().filter(|&second| second > first);
            let seconds: BTreeSet<GroupId> = next.take(NEIGHBOURS).chain(connected).ordered_set();
            for second in seconds.into_iter().filter(|second| walks.contains_key(second)) {
                let both = [first, second].map(|group| &self.groups[group]);
                let nodes: BTreeSet<NodeId> = both.into_iter().flatten().copied().ordered_set();
                if both.iter().all(|nodes| !nodes.is_empty()) && self.accepts(&nodes) {
                    self.assign(first, nodes);
                }
            }
        }
    }

    /// The loop extents of a kernel without a main operator.
    pub(super) fn walk(&self, nodes: &BTreeSet<NodeId>) -> Option<Vec<Dim>> {
        let first = *self.results(nodes).first()?;
        let walked = match self.inputs(first) {
            &[_, _, rows] if self.sets_rows(first) => rows,
            _ => Value { node: first, port: 0 },
        };
        let is_map = nodes.iter().all(|&id| self.is_elementwise(id) || self.sets_rows(id));
        self.graph.ty(walked).filter(|_| is_map).map(|ty| ty.shape.clone())
    }

    /// The groups that read results of a group or compute its operands.
    pub(super) fn connected(&self, group: GroupId) -> BTreeSet<GroupId> {
        let nodes = self.groups[group].iter();
        let around = nodes.flat_map(|&id| {
            let producers = self.inputs(id).iter().map(|value| value.node);
            self.users(id).iter().copied().chain(producers)
        });
        around.filter_map(|id| self.group_of(id)).ordered_set()
    }

    /// True if recomputing a free node with its free dependencies reads no tensor, or costs no more than a few simple
    /// operations.
    fn is_cheap(&self, id: NodeId, operations: usize) -> bool {
        let (mut weight, mut reads_tensor) = (0, false);
        let mut cone = BTreeSet::from([id]);
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            weight += self.weight(id);
            for &value in self.inputs(id) {
                if !self.is_free(value.node) {
                    reads_tensor |= self.graph.ty(value).is_some_and(|ty| ty.layout == Layout::Device);
                } else if cone.insert(value.node) {
                    stack.push(value.node);
                }
            }
            if reads_tensor && weight > operations || cone.len() > REPEATED {
                return false;
            }
        }
        true
    }

    fn weight(&self, id: NodeId) -> usize {
        match self.graph.node(id) {
            Some(node) => match node.op.weight() {
                // Every element selects among the operands.
                0 if self.inputs(id).len() > BINDINGS => self.inputs(id).len(),
                weight => weight,
            },
            None => 0,
        }
    }
}

/// The form of a reduction: an axis of a shape, by sample or over all rows.
#[derive(PartialEq)]
struct Reduced<'g> {
    shape: &'g [Dim],
    axis: usize,
    /// The offsets of samples.
    samples: Option<Value>,
}

/// Largest number of operators from a slice of a row to the one that joins the slices again.
const SLICE_READERS: usize = 5;

/// Largest number of nodes between two matmuls that are examined for softmax attention.
const SOFTMAX_NODES: usize = 256;

/// Number of kernels, nearest first, with which a kernel is compared for merging.
const NEIGHBOURS: usize = 16;

/// Assumed number of tiles that recompute an operand, as in a matmul with 512 columns.
const TILES: f64 = 8.0;
/// Largest number of nodes that are recomputed together.
const REPEATED: usize = 64;
