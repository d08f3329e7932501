/// The share of examples whose class is predicted correctly.
///
/// ```
/// use rewire_metrics::Accuracy;
/// let mut accuracy = Accuracy::default();
/// accuracy.add_binary(0.6, true, 0.5);
/// accuracy.add_classes(&[0.2, 0.5, 0.3], 2, 1);
/// assert_eq!(accuracy.value(), Some(0.5));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Accuracy {
    right: u64,
    examples: u64,
}

impl Accuracy {
    /// Adds a binary example; the prediction is `true` if the probability is above the threshold.
    pub fn add_binary(&mut self, probability: f32, label: bool, threshold: f32) {
        self.right += u64::from((probability > threshold) == label);
        self.examples += 1;
    }

    /// Adds an example by the scores of all classes, of which the `k` largest are predicted; ties are broken by the smaller class. NaN is
    /// never correct.
    pub fn add_classes(&mut self, scores: &[f32], class: usize, k: usize) {
        let is_right = scores.get(class).filter(|own| !own.is_nan()).is_some_and(|own| {
            let is_before = |(index, other): (usize, &f32)| other > own || other == own && index < class;
            scores.iter().enumerate().filter(|entry| is_before(*entry)).count() < k
        });
        self.right += u64::from(is_right);
        self.examples += 1;
    }

    /// The share; `None` without examples.
    pub fn value(&self) -> Option<f64> {
        (self.examples > 0).then(|| self.right as f64 / self.examples as f64)
    }
}
