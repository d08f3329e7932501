/// Cross entropy over that of the mean label (He et al., 2014): below 1 it is better than what knows only how many labels are
/// true.
///
/// ```
/// use rewire_metrics::NormalizedEntropy;
/// let mut entropy = NormalizedEntropy::default();
/// for label in [true, false, false, true] {
///     entropy.add(0.0, label);
/// }
/// assert_eq!(entropy.value(), Some(1.0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NormalizedEntropy {
    cross_entropy: f64,
    positives: u64,
    examples: u64,
}

impl NormalizedEntropy {
    /// Adds an example by its logit, the logarithm of `p / (1 - p)`.
    pub fn add(&mut self, logit: f64, label: bool) {
        let wrong = if label { -logit } else { logit };
        self.cross_entropy += wrong.max(0.0) + (-wrong.abs()).exp().ln_1p();
        self.positives += u64::from(label);
        self.examples += 1;
    }

    /// The mean over the examples so far; `None` without a positive or without a negative.
    pub fn value(&self) -> Option<f64> {
        let negatives = self.examples - self.positives;
        let [positives, negatives, all] = [self.positives, negatives, self.examples].map(|count| count as f64);
        let entropy = -(positives * (positives / all).ln() + negatives * (negatives / all).ln());
        (positives > 0.0 && negatives > 0.0).then(|| self.cross_entropy / entropy)
    }
}
