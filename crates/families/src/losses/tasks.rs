//! The tasks of a configuration: their labels, weights, losses and metrics.

use super::labels::LabelKind;
use crate::models::Model;
use rewire_features::{Problem, Problems, read};
use rewire_graph::HostTensor;
use serde::Deserialize;
use serde_json::Value;

/// A task: a prediction per row or candidate, and its label.
#[derive(Clone, Debug)]
pub struct Task {
    /// Suffix of the names of its predictions, losses and metrics, such as `_ctr`; empty for the only task of a model.
    pub suffix: String,
    /// JSON pointer of its message in the configuration.
    pub pointer: String,
    /// The column of labels.
    pub label: String,
    /// If set, the label is 1 if one of these bits is set in the column, otherwise 0.
    pub bitmask: Option<i64>,
    /// Number of logits.
    pub num_class: usize,
    /// Metric messages of the configuration.
    pub metrics: Vec<Value>,
    /// Names of its losses, including the suffix.
    pub losses: Vec<String>,
    /// True if the task only has predictions in training.
    pub is_training_only: bool,
    pub(super) weighting: Weighting,
    pub(super) terms: Vec<Loss>,
}

/// How a loss is reduced over rows: their mean, weighted by sample weights divided by their mean, times `weight`.
#[derive(Clone, Debug)]
pub(super) struct Weighting {
    /// The column of sample weights.
    pub sample_weight: Option<String>,
    pub indicator: Option<Indicator>,
    pub weight: f64,
}

/// A label that marks the rows inside the sample space of a task, and the sample weights inside and outside of it.
#[derive(Clone, Debug)]
pub(super) struct Indicator {
    pub label: String,
    pub inside: f64,
    pub outside: f64,
}

/// A loss message of the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Loss {
    BinaryCrossEntropy(Smoothing),
    SoftmaxCrossEntropy(Smoothing),
    #[serde(rename = "binary_focal_loss")]
    BinaryFocal(Focal),
    #[serde(rename = "jrc_loss")]
    Jrc(Jrc),
    #[serde(rename = "l2_loss")]
    L2(Empty),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Empty {}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Smoothing {
    #[serde(default)]
    pub label_smoothing: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Focal {
    #[serde(default = "two")]
    pub gamma: f64,
    #[serde(default = "half")]
    pub alpha: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Jrc {
    pub session_name: String,
    #[serde(default = "half")]
    pub alpha: f64,
}

fn two() -> f64 {
    2.0
}

fn half() -> f64 {
    0.5
}

impl Task {
    /// The labels of the task from the inputs of [`TracedLosses::encode`](super::TracedLosses::encode): numbers or classes; with a bit mask
    /// 1 if a bit is set, otherwise 0.
    pub fn labels(&self, inputs: &[(String, HostTensor)]) -> Vec<f64> {
        let find = |name: String| inputs.iter().find(|(known, _)| *known == name).map(|(_, labels)| labels);
        let integers = find(format!("labels.{}.integer", self.label)).map(HostTensor::to_i64);
        match (integers, self.bitmask) {
            (Some(bits), Some(mask)) => bits.iter().map(|bits| f64::from(u8::from(bits & mask != 0))).collect(),
            (Some(classes), None) => classes.iter().map(|&class| class as f64).collect(),
            (None, _) => find(format!("labels.{}", self.label)).map(HostTensor::to_f64).unwrap_or_default(),
        }
    }

    /// Features whose ids define the groups of grouped metrics.
    pub fn grouping_keys(&self) -> impl Iterator<Item = String> {
        let values = self.metrics.iter().filter_map(Value::as_object).flat_map(|metric| metric.values());
        values.filter_map(|metric| metric.get("grouping_key")?.as_str()).map(str::to_owned)
    }
}

impl Loss {
    /// TorchEasyRec's name of the loss.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BinaryCrossEntropy(_) => "binary_cross_entropy",
            Self::SoftmaxCrossEntropy(_) => "softmax_cross_entropy",
            Self::BinaryFocal(_) => "binary_focal_loss",
            Self::Jrc(_) => "jrc_loss",
            Self::L2(_) => "l2_loss",
        }
    }

    /// The kind of labels that the loss requires.
    pub fn labels(&self, num_class: usize) -> LabelKind {
        match self {
            Self::BinaryCrossEntropy(_) | Self::BinaryFocal(_) => LabelKind::Probability,
            Self::SoftmaxCrossEntropy(_) | Self::Jrc(_) => LabelKind::Class(num_class),
            Self::L2(_) => LabelKind::Number,
        }
    }

    /// The first invalid parameter of the loss: its key, and the allowed values.
    fn wrong(&self, num_class: usize) -> Option<(&'static str, &'static str)> {
        let unit = |value: f64| (0.0..=1.0).contains(&value);
        match self {
            Self::BinaryCrossEntropy(Smoothing { label_smoothing })
            | Self::SoftmaxCrossEntropy(Smoothing { label_smoothing }) => {
                (!unit(*label_smoothing)).then_some(("label_smoothing", "must be from 0 to 1"))
            }
            Self::BinaryFocal(Focal { gamma, .. }) if *gamma < 0.0 => Some(("gamma", "must be at least 0")),
            Self::BinaryFocal(Focal { alpha, .. }) if *alpha <= 0.0 || *alpha >= 1.0 => {
                Some(("alpha", "must be above 0 and below 1"))
            }
            Self::Jrc(Jrc { alpha, .. }) if !unit(*alpha) => Some(("alpha", "must be from 0 to 1")),
            Self::Jrc(_) if num_class != 2 => Some(("", "needs `num_class: 2`")),
            _ => None,
        }
    }
}

/// The keys of `data_config` that name columns.
pub(super) struct DataColumns {
    pub labels: Vec<String>,
    pub sample_weights: Vec<String>,
}

impl DataColumns {
    pub fn new(config: &Value) -> Self {
        let names = |key: &str| {
            let names = config.pointer(&format!("/data_config/{key}")).and_then(Value::as_array);
            names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self { labels: names("label_fields"), sample_weights: names("sample_weight_fields") }
    }

    /// The default label of the task at `position`.
    pub fn label(&self, position: usize) -> Result<String, Problem> {
        let missing = || Problem::new("/data_config/label_fields", format!("needs a label for task {position}"));
        self.labels.get(position).cloned().ok_or_else(missing)
    }
}

/// The keys of a task that affect losses and metrics, in `TaskTower`, `FusionSubTaskConfig` and `ModelConfig` messages.
#[derive(Debug, Deserialize)]
struct TaskMessage {
    #[serde(default, alias = "task_name")]
    tower_name: String,
    #[serde(default)]
    label_name: Option<String>,
    #[serde(default)]
    task_bitmask: i64,
    #[serde(default = "one")]
    num_class: usize,
    #[serde(default)]
    losses: Vec<Value>,
    #[serde(default)]
    metrics: Vec<Value>,
    #[serde(default = "unit")]
    weight: f64,
    #[serde(default)]
    sample_weight_name: Option<String>,
    #[serde(default)]
    task_space_indicator_label: Option<String>,
    #[serde(default = "unit")]
    in_task_space_weight: f64,
    #[serde(default = "unit")]
    out_task_space_weight: f64,
}

fn one() -> usize {
    1
}

fn unit() -> f64 {
    1.0
}

/// The tasks of a ranking model.
pub(super) fn tasks(model: &Model<'_>, data: &DataColumns) -> Result<Vec<Task>, Problems> {
    let pointer = model.pointer();
    let lists = ["/task_towers", "/fusion_mtl_tower/task_configs"];
    let list = lists.into_iter().find_map(|path| Some((path, model.message.pointer(path)?.as_array()?)));
    let mut problems = Problems::default();
    let mut tasks = vec![];
    match list {
        Some((path, messages)) => {
            for (position, message) in messages.iter().enumerate() {
                let pointer = format!("{pointer}{path}/{position}");
                let Some(message) = read::<TaskMessage>(message, &pointer, &mut problems) else { continue };
                let suffix = format!("_{}", message.tower_name);
                tasks.push(task(message, suffix, &pointer, (position, data), &mut problems)?);
            }
        }
        None => {
            let suffixes: &[&str] = if model.kind == "rocket_launching" { &["_booster", "_light"] } else { &[""] };
            for suffix in suffixes {
                let message = read::<TaskMessage>(model.config, "/model_config", &mut problems);
                let Some(mut message) = message else { continue };
                message.sample_weight_name = data.sample_weights.first().cloned();
                let mut task = task(message, (*suffix).to_owned(), "/model_config", (0, data), &mut problems)?;
                task.is_training_only = *suffix == "_booster";
                tasks.push(task);
            }
        }
    }
    problems.none_or(tasks)
}

fn task(
    message: TaskMessage,
    suffix: String,
    pointer: &str,
    (position, data): (usize, &DataColumns),
    problems: &mut Problems,
) -> Result<Task, Problem> {
    let label = message.label_name.map_or_else(|| data.label(position), Ok)?;
    let mut terms = vec![];
    for (index, loss) in message.losses.iter().enumerate() {
        let pointer = format!("{pointer}/losses/{index}");
        let Some(loss) = read::<Loss>(loss, &pointer, problems) else { continue };
        if let Some((key, reason)) = loss.wrong(message.num_class) {
            let key = if key.is_empty() { String::new() } else { format!("/{key}") };
            problems.push(format!("{pointer}/{}{key}", loss.name()), reason);
        }
        terms.push(loss);
    }
    let indicator = message.task_space_indicator_label.map(|label| Indicator {
        label,
        inside: message.in_task_space_weight,
        outside: message.out_task_space_weight,
    });
    Ok(Task {
        losses: terms.iter().map(|loss| format!("{}{suffix}", loss.name())).collect(),
        suffix,
        pointer: pointer.to_owned(),
        label,
        bitmask: Some(message.task_bitmask).filter(|mask| *mask != 0),
        num_class: message.num_class,
        metrics: message.metrics,
        is_training_only: false,
        weighting: Weighting { sample_weight: message.sample_weight_name, indicator, weight: message.weight },
        terms,
    })
}
