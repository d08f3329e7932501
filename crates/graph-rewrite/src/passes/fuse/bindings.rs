use super::partition::{GroupId, Partition};
use crate::error::NotLowerable;
use rewire_graph::{NodeId, Ordered, Type, Value, reached};
use std::collections::BTreeSet;

impl Partition<'_> {
    /// Splits off parts of the prologue of kernels that need more bindings than are guaranteed.
    pub(super) fn free_bindings(&mut self) {
        let mut group = 0;
        while group < self.groups.len() {
            if self.excess(&self.groups[group]) > 0
                && let Some(part) = self.cheapest_part(group)
            {
                self.create(part);
                continue;
            }
            group += 1;
        }
    }

    /// Splits off repeated computation from kernels that exceed the size limits.
    pub(super) fn shorten(&mut self) {
        let mut group = 0;
        while group < self.groups.len() {
            match self.repeated(group) {
                Some(id) => drop(self.create(BTreeSet::from([id]))),
                None => group += 1,
            }
        }
    }

    /// The last node, among those that a too large kernel recomputes, whose value can be stored.
    fn repeated(&self, group: GroupId) -> Option<NodeId> {
        let nodes = &self.groups[group];
        let cone = self.cone(nodes, &self.results(nodes));
        let apart =
            |id: &NodeId| !self.is_scores(*id) && !self.inputs(*id).is_empty() && !self.depends(vec![*id], nodes);
        let last = cone.free.into_iter().find(apart)?;
        matches!(self.try_lower_whole(nodes).as_ref(), Err(NotLowerable::Limit(_))).then_some(last)
    }

    /// The number of bindings that a kernel needs beyond the limit.
    fn excess(&self, nodes: &BTreeSet<NodeId>) -> usize {
        self.bindings(nodes).saturating_sub(self.most_bindings)
    }

    /// The part of a kernel's prologue whose removal frees the most bindings; among equals, the part that writes the
    /// fewest bytes.
    fn cheapest_part(&mut self, group: GroupId) -> Option<BTreeSet<NodeId>> {
        let before = self.excess(&self.groups[group]);
        let mut best: Option<(usize, u64, usize, BTreeSet<NodeId>)> = None;
        for id in self.prologue(group) {
            let part = self.part(group, id);
            let written: u64 = self.results(&part).iter().map(|&id| self.row_bytes(id)).sum();
            let (rest, within) = self.without(group, &part);
            let rank = (rest, written, usize::MAX - part.len());
            let better = best.as_ref().is_none_or(|best| rank < (best.0, best.1, best.2));
            if within == 0 && rest < before && better && self.try_lower_alone(&part).is_ok() {
                best = Some((rank.0, rank.1, rank.2, part));
            }
        }
        best.map(|(.., part)| part)
    }

    /// Elementwise nodes that a kernel computes before its main operator.
    fn prologue(&self, group: GroupId) -> BTreeSet<NodeId> {
        let nodes = &self.groups[group];
        let main_operators: BTreeSet<NodeId> =
            nodes.iter().copied().filter(|&id| !self.is_elementwise(id)).ordered_set();
        let mut found: BTreeSet<NodeId> = self.cone(nodes, &self.results(nodes)).free.into_iter().ordered_set();
        found.extend(nodes.iter().filter(|&&id| self.is_elementwise(id) && !self.depends(vec![id], &main_operators)));
        found.retain(|&id| !self.is_scores(id) && !self.inputs(id).is_empty());
        found
    }

    /// A node with its dependencies in its kernel.
    pub(super) fn part(&self, group: GroupId, id: NodeId) -> BTreeSet<NodeId> {
        let nodes = &self.groups[group];
        let own = |id| self.inputs(id).iter().map(|value| value.node).filter(|producer| nodes.contains(producer));
        reached([id], own).into_iter().ordered_set()
    }

    /// The excess bindings of a kernel without a part, and of the part as a separate kernel.
    fn without(&mut self, group: GroupId, part: &BTreeSet<NodeId>) -> (usize, usize) {
        let whole = self.groups[group].clone();
        let new = self.create(part.clone());
        let excess = (self.excess(&self.groups[group]), self.excess(&self.groups[new]));
        self.dissolve(new);
        self.assign(group, whole);
        excess
    }

    fn row_bytes(&self, id: NodeId) -> u64 {
        let ty = self.graph.ty(Value { node: id, port: 0 });
        let elements = |ty: &Type| ty.shape.iter().filter_map(|dim| dim.as_const()).product::<usize>() as u64;
        ty.map_or(0, |ty| ty.dtype.format().bytes(elements(ty)))
    }
}
