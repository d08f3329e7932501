use crate::Record;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// How a record changed from an earlier one of the same workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// No metric got worse, at least one got better.
    Better,
    /// No metric changed by more than its threshold.
    Balanced,
    /// Some metrics got better, others worse.
    Mixed,
    /// No metric got better, at least one got worse.
    Worse,
    /// One of the two records is missing or has an error.
    Error,
}

/// A compared metric. Lower is better for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// [`Record::wall_ms`].
    WallMs,
    /// [`Record::gpu_ms`].
    GpuMs,
    /// [`Record::peak_bytes`].
    PeakBytes,
    /// [`Record::load_ms`].
    LoadMs,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Self; 4] = [Self::WallMs, Self::GpuMs, Self::PeakBytes, Self::LoadMs];

    /// The name of the record's field.
    pub fn name(self) -> &'static str {
        match self {
            Self::WallMs => "wall_ms",
            Self::GpuMs => "gpu_ms",
            Self::PeakBytes => "peak_bytes",
            Self::LoadMs => "load_ms",
        }
    }

    fn of(self, record: &Record) -> Option<f64> {
        match self {
            Self::WallMs => record.wall_ms,
            Self::GpuMs => record.gpu_ms,
            Self::PeakBytes => record.peak_bytes.map(|bytes| bytes as f64),
            Self::LoadMs => record.load_ms,
        }
    }
}

/// Tolerated relative change of each metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds(BTreeMap<Metric, f64>);

impl Default for Thresholds {
    /// 10 % for the time of a run, 5 % for GPU time and memory, 50 % for loading.
    fn default() -> Self {
        Self([(Metric::WallMs, 0.1), (Metric::GpuMs, 0.05), (Metric::PeakBytes, 0.05), (Metric::LoadMs, 0.5)].into())
    }
}

impl Thresholds {
    /// Sets the threshold of a metric.
    #[must_use]
    pub fn with(mut self, metric: Metric, threshold: f64) -> Self {
        self.0.insert(metric, threshold);
        self
    }

    fn of(&self, metric: Metric) -> f64 {
        self.0.get(&metric).copied().unwrap_or(0.0)
    }
}

/// The comparison of a record with an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the operator, module or model.
    pub op: String,
    /// The sizes of the workload.
    pub shape: Map<String, Value>,
    /// Type of inputs, weights and results.
    pub dtype: String,
    /// The change.
    pub category: Category,
    /// Relative change of every metric that both records have, such as -0.5 for half.
    pub changes: BTreeMap<&'static str, f64>,
    /// The error, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Compares records with earlier ones of the same workload on the same adapter, and on the same computer if both name it. Workloads
/// without an earlier record are ignored; workloads that are missing now are errors.
///
/// ```
/// use rewire_measure::{Category, Record, Thresholds, compare};
/// let before = Record { op: "addmm".into(), wall_ms: Some(2.0), ..Record::default() };
/// let after = Record { wall_ms: Some(1.0), ..before.clone() };
/// let found = compare(&[before], &[after], &Thresholds::default());
/// assert_eq!((found[0].category, found[0].changes["wall_ms"]), (Category::Better, -0.5));
/// ```
pub fn compare(before: &[Record], after: &[Record], thresholds: &Thresholds) -> Vec<Comparison> {
    let same_host = |a: &Record, b: &Record| a.host == b.host || a.host.is_none() || b.host.is_none();
    let same = |a: &Record, b: &Record| {
        (&a.op, &a.shape, &a.dtype, &a.kernel, &a.adapter) == (&b.op, &b.shape, &b.dtype, &b.kernel, &b.adapter)
            && same_host(a, b)
    };
    let pair = |old: &Record| {
        let new = after.iter().find(|new| same(old, new));
        let (category, changes, error) = judge(old, new, thresholds);
        Comparison { op: old.op.clone(), shape: old.shape.clone(), dtype: old.dtype.clone(), category, changes, error }
    };
    before.iter().map(pair).collect()
}

type Verdict = (Category, BTreeMap<&'static str, f64>, Option<String>);

fn judge(old: &Record, new: Option<&Record>, thresholds: &Thresholds) -> Verdict {
    let failed = |reason: String| (Category::Error, BTreeMap::new(), Some(reason));
    let Some(new) = new else { return failed("it was not measured".to_owned()) };
    for (when, record) in [("before", old), ("now", new)] {
        if let Some(error) = &record.error {
            return failed(format!("{when}: {error}"));
        }
    }
    let (mut better, mut worse, mut changes) = (false, false, BTreeMap::new());
    for metric in Metric::ALL {
        let (Some(old), Some(new)) = (metric.of(old).filter(|value| *value > 0.0), metric.of(new)) else { continue };
        let change = new / old - 1.0;
        better |= change < -thresholds.of(metric);
        worse |= change > thresholds.of(metric);
        changes.insert(metric.name(), change);
    }
    if changes.is_empty() {
        return failed("they have no metric in common".to_owned());
    }
    let category = match (better, worse) {
        (true, false) => Category::Better,
        (false, true) => Category::Worse,
        (true, true) => Category::Mixed,
        (false, false) => Category::Balanced,
    };
    (category, changes, None)
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Balanced => "balanced",
            Self::Mixed => "mixed",
            Self::Worse => "worse",
            Self::Error => "error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(wall: f64, bytes: u64) -> Record {
        Record { op: "x".into(), wall_ms: Some(wall), peak_bytes: Some(bytes), ..Record::default() }
    }

    #[test]
    fn categories_follow_from_metrics_and_thresholds() {
        let before = [record(1.0, 1000)];
        let category = |after: Record| compare(&before, &[after], &Thresholds::default())[0].category;
        assert_eq!(category(record(0.8, 1000)), Category::Better);
        assert_eq!(category(record(1.09, 1040)), Category::Balanced);
        assert_eq!(category(record(1.2, 1000)), Category::Worse);
        assert_eq!(category(record(1.0, 1100)), Category::Worse);
        assert_eq!(category(record(0.8, 1100)), Category::Mixed);
        assert_eq!(category(Record { error: Some("lost".into()), ..record(0.1, 1) }), Category::Error);
        assert_eq!(category(Record { wall_ms: None, peak_bytes: None, ..record(0.1, 1) }), Category::Error);
        let strict = Thresholds::default().with(Metric::WallMs, 0.01);
        assert_eq!(compare(&before, &[record(1.09, 1000)], &strict)[0].category, Category::Worse);
    }

    #[test]
    fn only_the_same_work_is_compared() {
        let before = [record(1.0, 1), Record { dtype: "f16".into(), ..record(1.0, 1) }];
        let after = [record(1.0, 1), Record { adapter: "other".into(), ..record(9.0, 1) }];
        let found = compare(&before, &after, &Thresholds::default());
        assert_eq!(found.iter().map(|c| c.category).collect::<Vec<_>>(), [Category::Balanced, Category::Error]);
        assert_eq!(found[1].error.as_deref(), Some("it was not measured"));
        let on = |host: &str| Record { host: Some(host.into()), ..record(1.0, 1) };
        let category = |new: Record| compare(&[on("a")], &[new], &Thresholds::default())[0].category;
        assert_eq!([category(on("a")), category(record(1.0, 1))], [Category::Balanced; 2]);
        assert_eq!(category(on("b")), Category::Error);
    }
}
