use super::partition::{GroupId, Partition};
use rewire_graph::{Arrange, NodeId};
use std::collections::BTreeSet;

impl Partition<'_> {
    /// Moves the nodes of a kernel next to each other in the order. The kernel then depends on nothing after its first
    /// node, and nothing before that depends on the kernel.
    pub(super) fn arrange(&mut self, group: GroupId) {
        let nodes = &self.groups[group];
        let (Some(first), Some(last)) = (self.first(nodes), nodes.iter().filter_map(|&id| self.position(id)).max())
        else {
            return;
        };
        if last - first + 1 == nodes.len() {
            return;
        }
        let window: Vec<NodeId> = self.order[first..=last].to_vec();
        let after = self.waiting(group, &window);
        let place = |id: &NodeId| if self.groups[group].contains(id) { 1 } else { 2 * usize::from(after.contains(id)) };
        let mut arranged = window;
        arranged.arrange_by_key(place);
        self.reorder(first, &arranged);
    }

    /// The nodes in `window`, between the first and the last node of a kernel, that depend on the kernel, with all
    /// nodes of their kernels.
    fn waiting(&self, group: GroupId, window: &[NodeId]) -> BTreeSet<NodeId> {
        let mut after: BTreeSet<NodeId> = BTreeSet::new();
        for &id in window.iter().filter(|id| !self.groups[group].contains(id)) {
            let waits = |id: NodeId| {
                let mut producers = self.inputs(id).iter().map(|value| value.node);
                producers.any(|producer| self.groups[group].contains(&producer) || after.contains(&producer))
            };
            let together = self.group_of(id).map(|group| &self.groups[group]);
            let is_after =
                after.contains(&id) || waits(id) || together.is_some_and(|nodes| nodes.iter().any(|&id| waits(id)));
            if is_after {
                after.insert(id);
                after.extend(together.into_iter().flatten());
            }
        }
        after
    }
}
