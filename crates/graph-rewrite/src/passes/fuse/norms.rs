//! Moves elementwise operators beside norms into the kernels of the norms.

use super::partition::{GroupId, Partition};
use rewire_graph::NodeId;
use std::collections::BTreeSet;

impl Partition<'_> {
    /// Moves kernels without a main operator into the norm, or other reduction of rows, whose results they read, so
    /// that these are not read again; and into the one that alone reads theirs. They are separate so far because other
    /// kernels read the norm's results too, as gradients do.
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
        if !self.has_reduction(nodes) {
            return None;
        }
        let is_read_here =
            |id: &NodeId| !self.is_output(*id) && self.users(*id).iter().all(|user| nodes.contains(user));
        let mut maps = self.connected(norm);
        maps.retain(|&map| self.results(&self.groups[map]).iter().all(is_read_here));
        maps.extend(self.readers(nodes));
        maps.retain(|&map| map != norm && self.walk(&self.groups[map]).is_some());
        maps.into_iter().find_map(|map| {
            let map = &self.groups[map];
            let both: BTreeSet<NodeId> = nodes.union(map).copied().collect();
            // What lies between is also read elsewhere, and computed in each kernel.
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
