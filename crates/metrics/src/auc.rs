/// Area under the ROC curve, accumulated score by score.
///
/// ```
/// use rewire_metrics::Auc;
/// let mut auc = Auc::default();
/// for (score, label) in [(0.1, false), (0.4, true), (0.35, false), (0.8, true)] {
///     auc.add(score, label);
/// }
/// assert_eq!(auc.value(), Some(1.0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Auc {
    scores: Vec<(f32, bool)>,
}

impl Auc {
    /// Adds a candidate's score, or a monotonic function of it such as its logit.
    pub fn add(&mut self, score: f32, label: bool) {
        self.scores.push((score, label));
    }

    /// The share of pairs of a positive and a negative that are ordered correctly, with ties counting half; `None` without
    /// a positive or without a negative.
    pub fn value(&self) -> Option<f64> {
        let mut scores = self.scores.clone();
        scores.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut below, mut positives, mut in_order) = (0u64, 0u64, 0.0);
        for ties in scores.chunk_by(|a, b| a.0 == b.0) {
            let hits = ties.iter().filter(|(_, label)| *label).count() as u64;
            let misses = ties.len() as u64 - hits;
            in_order += hits as f64 * (below as f64 + 0.5 * misses as f64);
            below += misses;
            positives += hits;
        }
        (positives > 0 && below > 0).then(|| in_order / (positives as f64 * below as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::Auc;

    fn auc(scores: &[f32], labels: &[bool]) -> Option<f64> {
        let mut auc = Auc::default();
        scores.iter().zip(labels).for_each(|(&score, &label)| auc.add(score, label));
        auc.value()
    }

    #[test]
    fn pairs_in_order_count() {
        assert_eq!(auc(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true]), Some(0.75));
        assert_eq!(auc(&[3.0, 2.0, 1.0], &[false, true, true]), Some(0.0));
    }

    #[test]
    fn ties_count_half() {
        assert_eq!(auc(&[1.0, 1.0, 1.0, 1.0], &[false, true, true, false]), Some(0.5));
        assert_eq!(auc(&[-0.0, 0.0], &[false, true]), Some(0.5));
    }

    #[test]
    fn one_class_has_none() {
        assert_eq!(auc(&[1.0, 2.0], &[true, true]), None);
        assert_eq!(auc(&[1.0, 2.0], &[false, false]), None);
        assert_eq!(auc(&[], &[]), None);
    }
}
