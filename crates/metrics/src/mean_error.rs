/// The mean of absolute or squared differences between predictions and labels.
///
/// ```
/// use rewire_metrics::MeanError;
/// let (mut absolute, mut squared) = (MeanError::absolute(), MeanError::squared());
/// for (prediction, label) in [(1.0, 2.0), (5.0, 2.0)] {
///     absolute.add(prediction, label);
///     squared.add(prediction, label);
/// }
/// assert_eq!((absolute.value(), squared.value()), (Some(2.0), Some(5.0)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MeanError {
    power: i32,
    sum: f64,
    examples: u64,
}

impl MeanError {
    /// Of absolute differences.
    pub fn absolute() -> Self {
        Self { power: 1, sum: 0.0, examples: 0 }
    }

    /// Of squared differences.
    pub fn squared() -> Self {
        Self { power: 2, ..Self::absolute() }
    }

    /// Adds an example.
    pub fn add(&mut self, prediction: f64, label: f64) {
        self.sum += (prediction - label).abs().powi(self.power);
        self.examples += 1;
    }

    /// The mean; `None` without examples.
    pub fn value(&self) -> Option<f64> {
        (self.examples > 0).then(|| self.sum / self.examples as f64)
    }
}
