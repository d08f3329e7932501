//! Metrics defined by messages of TorchEasyRec configurations.

use crate::{Accuracy, Average, BinnedAuc, GroupedAuc, GroupedXauc, MeanError, MulticlassAuc, NormalizedEntropy, xauc};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Debug;
use thiserror::Error;

/// A metric of predictions, accumulated batch by batch.
pub trait Metric: Debug + Send {
    /// Adds a batch.
    fn add(&mut self, batch: &Batch<'_>);

    /// The metric of all batches so far; `None` if undefined.
    fn value(&self) -> Option<f64>;
}

/// Predictions with labels.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// One row per example: a number, or one per class or item.
    pub predictions: &'a [f32],
    /// One label per example: a number, a class, or the relevant item.
    pub labels: &'a [f64],
    /// The group of each example, if the metric has groups.
    pub groups: &'a [u32],
}

impl Batch<'_> {
    /// The predictions of each example with its label.
    fn rows(&self) -> impl Iterator<Item = (&[f32], f64)> {
        let width = self.predictions.len().checked_div(self.labels.len()).unwrap_or(0).max(1);
        self.predictions.chunks_exact(width).zip(self.labels.iter().copied())
    }

    /// The prediction of each example with its label.
    fn numbers(&self) -> impl Iterator<Item = (f32, f64)> {
        self.predictions.iter().copied().zip(self.labels.iter().copied())
    }
}

/// The predictions that a metric uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The probability of label 1, for tasks of at most two classes.
    Probability,
    /// The probabilities of all classes, or the probability of label 1.
    Classes,
    /// The predicted number.
    Number,
    /// Similarities with items.
    Similarity,
}

/// Why a message is not a valid metric.
#[derive(Debug, Error)]
#[error("{key}: {reason}")]
pub struct MetricError {
    /// The key within the message, `/auc/thresholds`.
    pub key: String,
    /// The reason.
    pub reason: String,
}

/// A metric message, `{"auc": {"thresholds": 200}}`.
///
/// ```
/// use rewire_metrics::{Batch, MetricConfig};
/// let config = MetricConfig::parse(&serde_json::json!({ "auc": {} }))?;
/// let mut metric = config.metric(1);
/// metric.add(&Batch { predictions: &[0.1, 0.9], labels: &[0.0, 1.0], groups: &[] });
/// assert_eq!((config.name("_ctr").as_str(), metric.value()), ("auc_ctr", Some(1.0)));
/// # Ok::<(), rewire_metrics::MetricError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MetricConfig(Message);

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    Auc(Thresholds),
    MulticlassAuc(Multiclass),
    RecallAtK(AtK),
    MeanAbsoluteError(Empty),
    MeanSquaredError(Empty),
    Accuracy(AccuracyOf),
    GroupedAuc(Grouped),
    Xauc(Pairs),
    GroupedXauc(GroupedPairs),
    NormalizedEntropy(Entropy),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Thresholds {
    #[serde(default = "two_hundred")]
    thresholds: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Multiclass {
    #[serde(default = "two_hundred")]
    thresholds: usize,
    #[serde(default)]
    average: Average,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AtK {
    #[serde(default = "five")]
    top_k: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccuracyOf {
    #[serde(default = "half")]
    threshold: f32,
    #[serde(default = "one")]
    top_k: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grouped {
    grouping_key: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pairs {
    #[serde(default = "thousandth")]
    sample_ratio: f64,
    #[serde(default)]
    max_pairs: usize,
    #[serde(default)]
    in_batch: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupedPairs {
    grouping_key: String,
    #[serde(default)]
    max_pairs_per_group: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entropy {
    #[serde(default = "eta")]
    eta: f64,
}

fn two_hundred() -> usize {
    200
}

fn five() -> usize {
    5
}

fn half() -> f32 {
    0.5
}

fn one() -> usize {
    1
}

fn thousandth() -> f64 {
    1e-3
}

fn eta() -> f64 {
    1e-12
}

/// The most thresholds of a metric.
const MOST_THRESHOLDS: usize = 1 << 20;

impl MetricConfig {
    /// Parses a message.
    ///
    /// # Errors
    /// [`MetricError`] if it is unknown or has invalid values.
    pub fn parse(message: &Value) -> Result<Self, MetricError> {
        let mut message = message.clone();
        // Options of metrics in training.
        if let Some(fields) = message.as_object_mut() {
            fields.remove("step_decay_rate");
        }
        let kind = message.as_object().and_then(|fields| fields.keys().next().cloned()).unwrap_or_default();
        let wrong = |key: &str, reason: String| MetricError { key: format!("/{kind}{key}"), reason };
        let parsed: Message = serde_json::from_value(message).map_err(|error| wrong("", error.to_string()))?;
        let thresholds = match &parsed {
            Message::Auc(Thresholds { thresholds }) | Message::MulticlassAuc(Multiclass { thresholds, .. }) => {
                *thresholds
            }
            _ => 2,
        };
        if !(2..=MOST_THRESHOLDS).contains(&thresholds) {
            return Err(wrong("/thresholds", format!("must be in 2..={MOST_THRESHOLDS}, got {thresholds}")));
        }
        match &parsed {
            Message::RecallAtK(AtK { top_k: 0 }) | Message::Accuracy(AccuracyOf { top_k: 0, .. }) => {
                Err(wrong("/top_k", "must be at least 1".to_owned()))
            }
            Message::Xauc(Pairs { sample_ratio, .. }) if !(*sample_ratio > 0.0 && *sample_ratio <= 1.0) => {
                Err(wrong("/sample_ratio", format!("must be above 0 and at most 1, got {sample_ratio}")))
            }
            Message::NormalizedEntropy(Entropy { eta }) if !(*eta > 0.0 && *eta < 0.5) => {
                Err(wrong("/eta", format!("must be above 0 and below 0.5, got {eta}")))
            }
            _ => Ok(Self(parsed)),
        }
    }

    /// The reference's name, for a task with the name suffix `suffix`.
    pub fn name(&self, suffix: &str) -> String {
        let kind = match &self.0 {
            Message::Auc(_) => "auc",
            Message::MulticlassAuc(_) => "multiclass_auc",
            Message::RecallAtK(AtK { top_k }) => return format!("recall@{top_k}{suffix}"),
            Message::MeanAbsoluteError(_) => "mean_absolute_error",
            Message::MeanSquaredError(_) => "mean_squared_error",
            Message::Accuracy(_) => "accuracy",
            Message::GroupedAuc(_) => "grouped_auc",
            Message::Xauc(_) => "xauc",
            Message::GroupedXauc(_) => "grouped_xauc",
            Message::NormalizedEntropy(_) => "normalized_entropy",
        };
        format!("{kind}{suffix}")
    }

    /// The predictions that it uses.
    pub fn reads(&self) -> Read {
        match &self.0 {
            Message::Auc(_) | Message::GroupedAuc(_) | Message::NormalizedEntropy(_) => Read::Probability,
            Message::MulticlassAuc(_) | Message::Accuracy(_) => Read::Classes,
            Message::RecallAtK(_) => Read::Similarity,
            Message::MeanAbsoluteError(_)
            | Message::MeanSquaredError(_)
            | Message::Xauc(_)
            | Message::GroupedXauc(_) => Read::Number,
        }
    }

    /// The feature whose ids define its groups.
    pub fn grouping_key(&self) -> Option<&str> {
        match &self.0 {
            Message::GroupedAuc(Grouped { grouping_key }) | Message::GroupedXauc(GroupedPairs { grouping_key, .. }) => {
                Some(grouping_key)
            }
            _ => None,
        }
    }

    /// Creates the metric for a task with this many classes.
    pub fn metric(&self, num_class: usize) -> Box<dyn Metric> {
        match self.0.clone() {
            Message::Auc(Thresholds { thresholds }) => Box::new(BinnedAuc::new(thresholds)),
            Message::MulticlassAuc(of) => Box::new(MulticlassAuc::new(num_class, of.thresholds, of.average)),
            Message::RecallAtK(AtK { top_k }) => Box::new(RecallMetric { accuracy: Accuracy::default(), top_k }),
            Message::MeanAbsoluteError(_) => Box::new(MeanError::absolute()),
            Message::MeanSquaredError(_) => Box::new(MeanError::squared()),
            Message::Accuracy(AccuracyOf { threshold, top_k }) => {
                Box::new(AccuracyMetric { accuracy: Accuracy::default(), threshold, top_k })
            }
            Message::GroupedAuc(_) => Box::new(GroupedAuc::<u32>::default()),
            Message::Xauc(Pairs { in_batch: true, .. }) => Box::new(BatchXauc::default()),
            Message::Xauc(Pairs { sample_ratio, max_pairs, .. }) => {
                Box::new(SampledXauc { sample_ratio, max_pairs, examples: vec![] })
            }
            Message::GroupedXauc(GroupedPairs { max_pairs_per_group, .. }) => {
                Box::new(GroupedXauc::<u32>::new(if max_pairs_per_group == 0 { 100 } else { max_pairs_per_group }))
            }
            Message::NormalizedEntropy(Entropy { eta }) => Box::new(NormalizedEntropy::with_eta(eta)),
        }
    }
}

/// The number of an example's class.
fn class(label: f64) -> usize {
    label as usize
}

fn is_positive(label: f64) -> bool {
    label > 0.5
}

impl Metric for BinnedAuc {
    fn add(&mut self, batch: &Batch<'_>) {
        batch.numbers().for_each(|(probability, label)| self.add(probability, is_positive(label)));
    }

    fn value(&self) -> Option<f64> {
        Some(self.value())
    }
}

impl Metric for MulticlassAuc {
    fn add(&mut self, batch: &Batch<'_>) {
        batch.rows().for_each(|(probabilities, label)| self.add(probabilities, class(label)));
    }

    fn value(&self) -> Option<f64> {
        Some(self.value())
    }
}

/// Rows with one relevant item each.
#[derive(Debug)]
struct RecallMetric {
    accuracy: Accuracy,
    top_k: usize,
}

impl Metric for RecallMetric {
    fn add(&mut self, batch: &Batch<'_>) {
        batch.rows().for_each(|(row, label)| self.accuracy.add_classes(row, class(label), self.top_k));
    }

    fn value(&self) -> Option<f64> {
        self.accuracy.value()
    }
}

impl Metric for MeanError {
    fn add(&mut self, batch: &Batch<'_>) {
        batch.numbers().for_each(|(prediction, label)| self.add(prediction.into(), label));
    }

    fn value(&self) -> Option<f64> {
        self.value()
    }
}

impl Metric for GroupedAuc<u32> {
    fn add(&mut self, batch: &Batch<'_>) {
        let examples = batch.groups.iter().zip(batch.numbers());
        examples.for_each(|(&group, (score, label))| self.add(group, score, is_positive(label)));
    }

    fn value(&self) -> Option<f64> {
        self.value()
    }
}

impl Metric for GroupedXauc<u32> {
    fn add(&mut self, batch: &Batch<'_>) {
        let examples = batch.groups.iter().zip(batch.numbers());
        examples.for_each(|(&group, (prediction, label))| self.add(group, prediction, label));
    }

    fn value(&self) -> Option<f64> {
        self.value()
    }
}

impl Metric for NormalizedEntropy {
    fn add(&mut self, batch: &Batch<'_>) {
        batch.numbers().for_each(|(probability, label)| self.add_probability(probability.into(), label));
    }

    fn value(&self) -> Option<f64> {
        self.value()
    }
}

#[derive(Debug)]
struct AccuracyMetric {
    accuracy: Accuracy,
    threshold: f32,
    top_k: usize,
}

impl Metric for AccuracyMetric {
    fn add(&mut self, batch: &Batch<'_>) {
        for (row, label) in batch.rows() {
            match row {
                [probability] => self.accuracy.add_binary(*probability, is_positive(label), self.threshold),
                classes => self.accuracy.add_classes(classes, class(label), self.top_k),
            }
        }
    }

    fn value(&self) -> Option<f64> {
        self.accuracy.value()
    }
}

/// [`xauc`] of a share of the pairs of all examples, or of a number of pairs if that is above 0.
#[derive(Debug)]
struct SampledXauc {
    sample_ratio: f64,
    max_pairs: usize,
    examples: Vec<(f32, f64)>,
}

impl Metric for SampledXauc {
    fn add(&mut self, batch: &Batch<'_>) {
        self.examples.extend(batch.numbers());
    }

    fn value(&self) -> Option<f64> {
        let count = self.examples.len();
        let all = (count as f64) * (count.saturating_sub(1) as f64) / 2.0;
        let pairs = if self.max_pairs > 0 { self.max_pairs } else { (all * self.sample_ratio) as usize };
        xauc(&self.examples, pairs)
    }
}

/// The mean over batches of [`xauc`] of all pairs of a batch.
#[derive(Debug, Default)]
struct BatchXauc {
    sum: f64,
    batches: usize,
}

impl Metric for BatchXauc {
    fn add(&mut self, batch: &Batch<'_>) {
        let examples: Vec<(f32, f64)> = batch.numbers().collect();
        if let Some(value) = xauc(&examples, usize::MAX) {
            self.sum += value;
            self.batches += 1;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.batches > 0).then(|| self.sum / self.batches as f64)
    }
}
