/// Area under the ROC curve at evenly spaced thresholds from 0 to 1, accumulated in constant memory.
///
/// An example counts as positive at the thresholds that its probability reaches. The area is that of linear interpolation between the
/// thresholds' points, starting at threshold 1. Without examples of both labels it is 0.
///
/// ```
/// use rewire_metrics::BinnedAuc;
/// let mut auc = BinnedAuc::new(200);
/// for (probability, label) in [(0.1, false), (0.4, true), (0.35, false), (0.8, true)] {
///     auc.add(probability, label);
/// }
/// assert_eq!(auc.value(), 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct BinnedAuc {
    thresholds: Vec<f32>,
    /// Numbers of negative and positive examples, by the number of thresholds that they reach.
    counts: [Vec<u64>; 2],
}

impl BinnedAuc {
    /// With this many thresholds, at least 2.
    pub fn new(thresholds: usize) -> Self {
        let count = thresholds.max(2);
        let step = 1.0 / (count - 1) as f32;
        // From both ends, like torch's `linspace`.
        let threshold = |at: usize| match at < count / 2 {
            true => step * at as f32,
            false => 1.0 - step * (count - 1 - at) as f32,
        };
        Self { thresholds: (0..count).map(threshold).collect(), counts: [vec![0; count + 1], vec![0; count + 1]] }
    }

    /// Adds an example.
    pub fn add(&mut self, probability: f32, label: bool) {
        let reached = self.thresholds.partition_point(|threshold| *threshold <= probability);
        if let Some(count) = self.counts[usize::from(label)].get_mut(reached) {
            *count += 1;
        }
    }

    /// The number of examples with a label of `true`.
    pub fn positives(&self) -> u64 {
        self.counts[1].iter().sum()
    }

    /// The area.
    pub fn value(&self) -> f64 {
        let [negatives, positives] = [0, 1].map(|label| self.counts[label].iter().sum::<u64>() as f64);
        if negatives == 0.0 || positives == 0.0 {
            return 0.0;
        }
        let (mut area, mut reaching) = (0.0, [0u64; 2]);
        let mut last: Option<[f64; 2]> = None;
        for (negative, positive) in self.counts[0].iter().zip(&self.counts[1]).skip(1).rev() {
            reaching = [reaching[0] + negative, reaching[1] + positive];
            let point = [reaching[0] as f64 / negatives, reaching[1] as f64 / positives];
            if let Some([x, y]) = last {
                area += (point[0] - x) * (point[1] + y) / 2.0;
            }
            last = Some(point);
        }
        area
    }
}

/// How the areas of classes are averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Average {
    /// Their mean.
    #[default]
    Macro,
    /// Their mean weighted by the number of examples of each class.
    Weighted,
}

/// [`BinnedAuc`] of each class against all others, averaged.
///
/// ```
/// use rewire_metrics::{Average, MulticlassAuc};
/// let mut auc = MulticlassAuc::new(3, 200, Average::Macro);
/// auc.add(&[0.7, 0.2, 0.1], 0);
/// auc.add(&[0.1, 0.8, 0.1], 1);
/// auc.add(&[0.3, 0.3, 0.4], 2);
/// assert_eq!(auc.value(), 1.0);
/// ```
#[derive(Clone, Debug)]
pub struct MulticlassAuc {
    classes: Vec<BinnedAuc>,
    average: Average,
}

impl MulticlassAuc {
    /// For this many classes, each with this many thresholds.
    pub fn new(classes: usize, thresholds: usize, average: Average) -> Self {
        Self { classes: vec![BinnedAuc::new(thresholds); classes], average }
    }

    /// Adds an example by the probabilities of all classes.
    pub fn add(&mut self, probabilities: &[f32], class: usize) {
        for (index, (auc, &probability)) in self.classes.iter_mut().zip(probabilities).enumerate() {
            auc.add(probability, index == class);
        }
    }

    /// The average over classes. A class that no example has, or all have, counts as 0.
    pub fn value(&self) -> f64 {
        let weight = |auc: &BinnedAuc| match self.average {
            Average::Macro => 1.0,
            Average::Weighted => auc.positives() as f64,
        };
        let total: f64 = self.classes.iter().map(weight).sum();
        let sum: f64 = self.classes.iter().map(|auc| weight(auc) * auc.value()).sum();
        if total == 0.0 { 0.0 } else { sum / total }
    }
}
