//! Moves elementwise operators beside norms into the kernels of the norms.

use super::partition::{GroupId, Partition};
use crate::cost::Sizes;
use rewire_graph::NodeId;
use std::collections::BTreeSet;

impl Partition<'_> {
    /// Merges elementwise kernels into the norm, or other reduction of rows, that they read, or into their only reader
    /// if that is one. Earlier steps leave them separate if other kernels also read the norm, as gradients do.
    pub(super) fn join_norms(&mut self) {
        for norm in 0..self.groups.len() {
            while let Some(nodes) = self.with_map(norm) {
                self.assign(norm, nodes);
            }
        }
    }

    /// A norm with a kernel beside it.
    fn with_map(&self, norm: GroupId) -> Option<BTreeSet<NodeId>> {
        let nodes = &self.groups[norm];
        let is_main = |&&id: &&NodeId| !self.is_elementwise(id);
        if !self.has_reduction(nodes) || !nodes.iter().filter(is_main).all(|&id| self.is_reduction(id)) {
            return None;
        }
        let sizes = Sizes::assumed(self.graph);
        let is_read_here = |&id: &NodeId| {
            let is_stored = self.is_output(id) || self.is_spread(id, &sizes);
            !is_stored && self.users(id).iter().all(|user| nodes.contains(user))
        };
        let mut maps = self.connected(norm);
        maps.retain(|&map| self.results(&self.groups[map]).iter().all(is_read_here));
        maps.extend(self.readers(nodes));
        // Kernels that set rows of tables merge with each other.
        let sets_rows = |map: GroupId| self.groups[map].iter().any(|&id| self.sets_rows(id));
        maps.retain(|&map| map != norm && !sets_rows(map) && self.walk(&self.groups[map]).is_some());
        maps.into_iter().find_map(|map| {
            let map = &self.groups[map];
            let both: BTreeSet<NodeId> = nodes.union(map).copied().collect();
            // Free operators between them are recomputed by each reader, so that they need no kernel.
            let all = self.closed(norm, &map.iter().copied().collect::<Vec<_>>());
            let is_one = self.is_small(&both) && self.writes_last(&both) && !self.leaves_and_returns(&all);
            let fits = is_one && self.bindings(&both) <= self.most_bindings && self.try_lower(&both).is_ok();
            fits.then_some(both)
        })
    }

    /// The groups that read results of `nodes`, also through operators that they compute themselves.
    fn readers(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<GroupId> {
        let (mut stack, mut seen, mut readers) = (self.results(nodes), BTreeSet::new(), BTreeSet::new());
        while let Some(id) = stack.pop() {
            for &user in self.users(id).iter().filter(|user| !nodes.contains(user)) {
                match self.group_of(user) {
                    Some(group) => drop(readers.insert(group)),
                    None if seen.insert(user) => stack.push(user),
                    None => (),
                }
            }
        }
        readers
    }
}
