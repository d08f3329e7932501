use crate::Auc;
use std::collections::BTreeMap;

/// The mean [`Auc`] over groups such as users that have a positive and a negative.
///
/// ```
/// use rewire_metrics::GroupedAuc;
/// let mut auc = GroupedAuc::default();
/// for (user, score, label) in [("a", 0.1, false), ("b", 0.7, false), ("a", 0.4, true), ("b", 0.7, true), ("c", 0.9, true)] {
///     auc.add(user, score, label);
/// }
/// assert_eq!(auc.value(), Some(0.75));
/// ```
#[derive(Clone, Debug)]
pub struct GroupedAuc<G> {
    groups: BTreeMap<G, Auc>,
}

impl<G> Default for GroupedAuc<G> {
    fn default() -> Self {
        Self { groups: BTreeMap::new() }
    }
}

impl<G: Ord> GroupedAuc<G> {
    /// Adds a score, or a monotonic function of it, to a group.
    pub fn add(&mut self, group: G, score: f32, label: bool) {
        self.groups.entry(group).or_default().add(score, label);
    }

    /// The unweighted mean over groups; `None` if no group has both labels.
    pub fn value(&self) -> Option<f64> {
        let values = || self.groups.values().filter_map(Auc::value);
        let count = values().count();
        (count > 0).then(|| values().sum::<f64>() / count as f64)
    }
}
