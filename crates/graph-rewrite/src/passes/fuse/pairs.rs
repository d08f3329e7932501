//! Sums over the pairs of queries and keys.

use super::partition::{BINDINGS, GroupId, Partition};
use rewire_graph::op::{Op, ScoreKind, ScoreReduce, Scores, WeightedSum};
use rewire_graph::{NodeId, Value};
use std::collections::BTreeSet;

/// What a sum over pairs has a result of.
pub(super) fn side(op: &dyn Op) -> Option<ScoreKind> {
    let sum = op.downcast_ref::<WeightedSum>().map(|sum| sum.kind);
    sum.or_else(|| op.downcast_ref::<ScoreReduce>().map(|sum| sum.kind))
}

impl Partition<'_> {
    /// Joins a sum over pairs, with its scores, to an earlier kernel of sums over the same pairs that have their results of
    /// the same side, or starts a group.
    pub(super) fn seed_pairs(&mut self, id: NodeId) {
        let nodes = self.scores_of(id);
        let own: Vec<NodeId> = nodes.iter().copied().collect();
        let like = (0..self.groups.len()).filter(|&group| self.sums_alike(group, id, &nodes));
        let joined = like.map(|group| (group, self.closed(group, &own)));
        match joined.into_iter().find(|(_, nodes)| self.bindings(nodes) <= BINDINGS && self.accepts(nodes)) {
            Some((group, nodes)) => self.assign(group, nodes),
            None => drop(self.create(nodes)),
        }
    }

    /// True for groups of sums with results of the same side, one of which has a product with the node's pairs in common.
    fn sums_alike(&self, group: GroupId, id: NodeId, nodes: &BTreeSet<NodeId>) -> bool {
        let side_of = |id: NodeId| self.op(id).and_then(side);
        let products = |nodes: &BTreeSet<NodeId>| -> Vec<Vec<Value>> {
            nodes.iter().filter(|&&id| self.is_product(id)).map(|&id| self.inputs(id).to_vec()).collect()
        };
        let mut sides = self.groups[group].iter().filter_map(|&id| side_of(id)).peekable();
        let same = sides.peek().is_some() && sides.all(|side| Some(side) == side_of(id));
        let own = products(nodes);
        same && products(&self.groups[group]).iter().any(|product| own.contains(product))
    }

    fn is_product(&self, id: NodeId) -> bool {
        self.op(id).is_some_and(|op| op.downcast_ref::<Scores>().is_some())
    }

    /// A sum over pairs, its scores and what is computed from them. Masks stay free: layers share them.
    fn scores_of(&self, id: NodeId) -> BTreeSet<NodeId> {
        let mut pairs = BTreeSet::from([id]);
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            for value in self.inputs(id) {
                if self.is_scores(value.node) && pairs.insert(value.node) {
                    stack.push(value.node);
                }
            }
        }
        let products: BTreeSet<NodeId> = pairs.iter().copied().filter(|&id| self.is_product(id)).collect();
        pairs.into_iter().filter(|&id| self.depends(vec![id], &products)).collect()
    }
}
