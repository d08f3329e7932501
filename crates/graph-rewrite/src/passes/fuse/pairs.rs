//! Reductions over pairs of queries and keys.

use super::partition::{GroupId, Partition};
use rewire_graph::op::{Op, ScoreKind, Scores, WeightedSum};
use rewire_graph::{NodeId, Ordered, reached};
use std::collections::BTreeSet;

/// The granularity of a pair reduction's result.
pub(super) fn side(op: &dyn Op) -> Option<ScoreKind> {
    op.accumulated()?.pairs()
}

impl Partition<'_> {
    /// Joins a pair reduction, with its scores, to an earlier kernel of reductions over the same pairs with results of
    /// the same granularity, or starts a group.
    pub(super) fn seed_pairs(&mut self, id: NodeId) {
        let nodes = self.scores_of(id);
        let own: Vec<NodeId> = nodes.iter().copied().collect();
        let joined = self.sums_alike(id, &nodes).into_iter().map(|group| (group, self.closed(group, &own)));
        let mut joined = joined.collect::<Vec<_>>().into_iter();
        match joined.find(|(_, nodes)| self.bindings(nodes) <= self.most_bindings && self.accepts(nodes)) {
            Some((group, nodes)) => self.assign(group, nodes),
            None => drop(self.create(nodes)),
        }
    }

    /// Groups of reductions with results of the same granularity that share a matmul with the node's scores. Weighted
    /// sums by row are attention, which is faster separately.
    fn sums_alike(&self, id: NodeId, nodes: &BTreeSet<NodeId>) -> BTreeSet<GroupId> {
        let attends = |id: NodeId| self.graph.op::<WeightedSum>(id).is_some_and(|sum| sum.kind == ScoreKind::Row);
        let side_of = |id: NodeId| self.op(id).and_then(side);
        let same = |group: &GroupId| {
            let mut sums = self.groups[*group].iter().filter(|&&sum| side_of(sum).is_some());
            sums.all(|&sum| side_of(sum) == side_of(id) && !attends(sum))
        };
        let products = nodes.iter().copied().filter(|&node| self.is_product(node) && !attends(id));
        let alike = products.flat_map(|product| {
            let readers = self.inputs(product).first().map_or(&[][..], |query| self.users(query.node));
            readers.iter().filter(move |&&other| self.is_product(other) && self.inputs(other) == self.inputs(product))
        });
        alike.filter_map(|&product| self.group_of(product)).filter(same).ordered_set()
    }

    fn is_product(&self, id: NodeId) -> bool {
        self.graph.op::<Scores>(id).is_some()
    }

    /// A pair reduction, its scores and the values computed from them. Masks stay free, since layers share them.
    fn scores_of(&self, id: NodeId) -> BTreeSet<NodeId> {
        let made_of = |id| self.inputs(id).iter().map(|value| value.node).filter(|&id| self.is_scores(id));
        let pairs = reached([id], made_of);
        let products: BTreeSet<NodeId> = pairs.iter().copied().filter(|&id| self.is_product(id)).ordered_set();
        pairs.into_iter().filter(|&id| self.depends(vec![id], &products)).ordered_set()
    }
}
