/// Cross entropy divided by that of the mean label (He et al., 2014): below 1 it is better than predicting the mean.
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
    positives: f64,
    examples: f64,
    eta: Option<f64>,
}

/// The minimum logarithm of a probability.
const LEAST: f64 = -100.0;

impl NormalizedEntropy {
    /// Clamps probabilities and the mean label to `eta..=1 - eta`, so that the metric is defined if all labels are equal.
    pub fn with_eta(eta: f64) -> Self {
        Self { eta: Some(eta), ..Self::default() }
    }

    /// Adds an example by its logit, the logarithm of `p / (1 - p)`.
    pub fn add(&mut self, logit: f64, label: bool) {
        let wrong = if label { -logit } else { logit };
        self.cross_entropy += wrong.max(0.0) + (-wrong.abs()).exp().ln_1p();
        self.positives += f64::from(u8::from(label));
        self.examples += 1.0;
    }

    /// Adds an example by its probability; logarithms of probabilities are clamped to at least -100.
    pub fn add_probability(&mut self, probability: f64, label: f64) {
        let probability = self.eta.map_or(probability, |eta| probability.clamp(eta, 1.0 - eta));
        let [right, wrong] = [probability, 1.0 - probability].map(|p| p.ln().max(LEAST));
        self.cross_entropy -= label * right + (1.0 - label) * wrong;
        self.positives += label;
        self.examples += 1.0;
    }

    /// The mean over the examples so far; `None` without examples, or without a positive or a negative unless `eta` is set.
    pub fn value(&self) -> Option<f64> {
        let share = self.positives / self.examples;
        let share = self.eta.map_or(share, |eta| share.clamp(eta, 1.0 - eta));
        let entropy = -(self.positives * share.ln() + (self.examples - self.positives) * (1.0 - share).ln());
        (share > 0.0 && share < 1.0).then(|| self.cross_entropy / entropy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_and_the_mean_label_are_kept_away_from_the_ends() {
        let mut entropy = NormalizedEntropy::with_eta(0.1);
        entropy.add_probability(0.0, 1.0);
        entropy.add_probability(1.0, 1.0);
        let expected = (0.1f64.ln() + 0.9f64.ln()) / (2.0 * 0.9f64.ln());
        assert!((entropy.value().unwrap_or_default() - expected).abs() < 1e-12);
    }
}
