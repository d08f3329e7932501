//! Pipelines with their losses.
//!
//! # Inputs
//!
//! The graph has the inputs of [`rewire_features`] and the following. `B` is the number of rows, `R` the number of labels: `B`, or for
//! HSTU rankers the number of candidates of all rows.
//!
//! | input | type | contents |
//! |---|---|---|
//! | `labels.<column>` | F32 `[R]` | a label that is a probability or a number |
//! | `labels.<column>.integer` | I64 `[R]` | a label that is a class, a domain, or a bit mask of actions |
//! | `sample_weights.<column>` | F32 `[R]` | sample weights |
//! | `sessions.<feature>` | U32 `[R]` | the session of each label: the first id of the feature |
//! | `items.<feature>.*` | | two-tower models with sampled negatives: item features of the `B` rows, then of the negatives |
//! | `hard_negatives.rows` | U32 `[H]` | the row (in `hstu_match` the positive item) that each of the last `H` sampled items is a negative of |
//! | `hard_negatives.slots` | U32 `[H]` | its index among the hard negatives of that row |
//! | `positives.lengths` | integers `[B]`, read on the host | positive items per row of `hstu_match`; negatives follow the last row's candidates |

mod extra;
mod hard;
mod labels;
mod similarity;
mod tasks;
mod tracer;

pub(crate) use extra::{Extras, mean_of_rows, root_of_sum, sum_or_mean, unweighted_mean, whole};
pub(crate) use similarity::first_rows;
pub use tasks::Task;

use crate::models::{self, Model};
use crate::trace::{Pipeline, TraceError, Traced, inputs};
use crate::{Output, hstu};
use hard::{HardSampler, INDICES};
use labels::{LabelInputs, POSITIVES};
use rewire_features::{Column, EncodeError, Features, NegativeRow, Problem, Problems};
use rewire_graph::{Graph, HostTensor, Mode, Scope};
use rewire_hstu::modules::Buffer;
use serde_json::Value;
use similarity::MatchMessage;
use std::ops::Range;
use tracer::Tracer;

/// Prefix of item inputs, if the batch contains more items than rows.
const ITEMS: &str = "items.";

/// The prefix of loss outputs.
pub const LOSS: &str = "loss.";

/// The output with the sum of all losses.
pub const TOTAL: &str = "loss";

/// The output of match models in [`Mode::Eval`] with the similarities `[R, N]`.
pub const SIMILARITY: &str = "similarity";

/// A traced pipeline with its losses.
#[derive(Debug)]
pub struct TracedLosses {
    /// The graph. Its outputs are the predictions, a scalar F32 `loss.<name>` for each of `losses`, and their sum `loss`.
    pub graph: Graph,
    /// The features and groups of the pipeline.
    pub features: Features,
    /// The columns that a batch must have: features, labels, sample weights, sessions, and in [`Mode::Eval`] grouping keys.
    pub columns: Vec<String>,
    /// The columns that the table of negatives must have; empty for models without sampled negatives.
    pub negatives: Vec<String>,
    /// The predictions, as in [`Traced`]. [`Mode::Eval`] adds predictions for each row's domain (`pepnet`) and similarities (match models).
    pub outputs: Vec<Output>,
    /// TorchEasyRec's names of the losses, in the order in which they are summed.
    pub losses: Vec<String>,
    /// The tasks of a ranking model.
    pub tasks: Vec<Task>,
    /// Evaluation settings of a match model; `None` for ranking models.
    pub matching: Option<Matching>,
    /// State-dict tensors that follow from the configuration and are not parameters of the graph.
    pub buffers: Vec<Buffer>,
    /// State-dict tensors that follow from the configuration and that rewire does not read.
    pub unread: Vec<Buffer>,
    /// The features that the graph reads per row; `items` has those read per item, if items have separate inputs.
    rows: Vec<String>,
    items: Vec<String>,
    hard: Option<HardSampler>,
    labels: LabelInputs,
}

/// Evaluation settings of a match model.
#[derive(Clone, Debug)]
pub struct Matching {
    /// Metric messages of the configuration.
    pub metrics: Vec<Value>,
    /// True if column `i` of the similarities of row `i` is the row's own item. Otherwise it is column 0.
    pub in_batch: bool,
}

/// Traces the pipeline of an `EasyRecConfig` with its losses. The outputs include those of [`trace`](crate::trace). [`Mode::Train`]
/// builds the training graph, which has additional losses.
///
/// ```
/// use rewire_graph::Mode;
/// use serde_json::json;
/// let config = json!({
///     "data_config": { "label_fields": ["clk"] },
///     "feature_configs": [{ "id_feature": { "feature_name": "user", "num_buckets": 9, "embedding_dim": 4 } }],
///     "model_config": {
///         "feature_groups": [{ "group_name": "deep", "feature_names": ["user"] }],
///         "multi_tower": { "towers": [{ "input": "deep", "mlp": { "hidden_units": [8] } }] },
///         "losses": [{ "binary_cross_entropy": {} }]
///     }
/// });
/// let traced = rewire_families::trace_losses(&config, Mode::Train)?;
/// assert_eq!(traced.columns, ["user", "clk"]);
/// assert_eq!(traced.losses, ["binary_cross_entropy"]);
/// # Ok::<(), rewire_families::TraceError>(())
/// ```
///
/// # Errors
/// As [`trace`](crate::trace), and for unsupported losses and tasks.
pub fn trace_losses(config: &Value, mode: Mode) -> Result<TracedLosses, TraceError> {
    check(config, mode)?;
    let pipeline = Pipeline::parse(config)?;
    let scope = Scope::new().without_places().with_mode(mode);
    let extra = Extras::default();
    let model = Model { extra: Some(&extra), ..pipeline.model(&scope, "") };
    let message = if model.is_match() { Some(MatchMessage::read(&model, HardSampler::read(config)?)?) } else { None };
    let is_sampled = message.as_ref().is_some_and(|message| !message.in_batch_negative);
    let model = Model { items: if is_sampled && pipeline.hstu.is_none() { ITEMS } else { "" }, ..model };
    let mut outputs = match &pipeline.hstu {
        Some(hstu) => hstu::predictions(&model, hstu)?,
        None => models::predictions(&model)?,
    };
    let mut tracer = Tracer::new(model, config);
    let tasks = match &message {
        Some(message) => tracer.of_match(message, &mut outputs).map(|()| vec![])?,
        None => tracer.of_tasks(&mut outputs)?,
    };
    tracer.of_modules(&extra);
    let (labels, losses) = tracer.finish();
    let total = losses.iter().map(|(_, loss)| loss.clone()).reduce(|sum, loss| sum + loss);
    let total = total.ok_or_else(|| Problem::new("/model_config/losses", "must have at least one loss"))?;
    let predicted = outputs.len();
    outputs.extend(losses.iter().map(|(name, loss)| (format!("{LOSS}{name}"), loss.clone())));
    outputs.push((TOTAL.to_owned(), total));
    let hard = message.as_ref().and_then(|message| message.hard());
    let matching =
        message.map(|message| Matching { metrics: model.list("metrics"), in_batch: message.in_batch_negative });
    let candidates = pipeline.hstu.as_ref().map(|hstu| hstu.candidate_groups());
    let Traced { graph, interface, columns: rows, outputs, buffers, .. } = pipeline.finish(scope, &outputs)?;
    let items = interface.columns(inputs(&graph, ITEMS));
    let features = interface.features;
    let groups = candidates.filter(|_| is_sampled).into_iter().flatten().filter_map(|name| features.group(&name));
    let negatives = groups.flat_map(|group| &group.feature_names).chain(&items).cloned();
    let negatives = negatives.chain(hard.map(|_| INDICES.to_owned())).collect();
    let mut traced = TracedLosses {
        columns: vec![],
        outputs: outputs.into_iter().take(predicted).collect(),
        losses: losses.into_iter().map(|(name, _)| name).collect(),
        graph,
        features,
        negatives,
        tasks,
        matching,
        buffers,
        unread: extra.take_buffers(),
        rows,
        items,
        hard,
        labels,
    };
    traced.columns = traced.all_columns(mode);
    Ok(traced)
}

/// Rejects unsupported options that would change losses.
fn check(config: &Value, mode: Mode) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let key = "/model_config/use_pareto_loss_weight";
    if mode == Mode::Train && config.pointer(key).and_then(Value::as_bool) == Some(true) {
        problems.push(key, "weights of losses by their gradients are not supported, expected false");
    }
    problems.none_or(())
}

impl TracedLosses {
    fn all_columns(&self, mode: Mode) -> Vec<String> {
        let labels = self.labels.inputs.iter().map(|input| &input.column);
        let keys: Vec<String> = match mode {
            Mode::Eval => self.tasks.iter().flat_map(Task::grouping_keys).collect(),
            Mode::Train => vec![],
        };
        let mut all: Vec<String> = vec![];
        for column in self.rows.iter().chain(&self.items).chain(labels).chain(&keys) {
            if !all.contains(column) {
                all.push(column.clone());
            }
        }
        all
    }

    /// Encodes rows of the named columns as graph inputs. Models with sampled negatives also need a row of the table of negatives.
    ///
    /// # Errors
    /// [`EncodeError`] names the column and the row.
    pub fn encode<'c>(
        &self,
        column: impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
        negatives: Option<NegativeRow<'_, '_>>,
    ) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        let mut inputs = self.labels.encode(&self.features, &column, rows.clone())?;
        let own = |name: &&String| self.negatives.contains(name) && !self.items.contains(name);
        let (listed, others): (Vec<&String>, Vec<&String>) = self.rows.iter().partition(own);
        inputs.extend(self.features.encode(&others, &column, rows.clone())?);
        if self.negatives.is_empty() {
            return Ok(inputs);
        }
        let negatives = negatives.ok_or(EncodeError::NoNegatives)?;
        let with = |names: &[&String]| self.features.encode_with_negatives(names, &column, rows.clone(), negatives);
        let mut positives = rows.len();
        if let Some(feature) = listed.first() {
            let steps = self.features.steps(feature, &column, rows.clone())?;
            positives = steps.iter().sum::<i64>() as usize;
            inputs.push((POSITIVES.to_owned(), HostTensor::lengths(&steps)));
        }
        inputs.extend(with(&listed)?);
        if let (Some(hard), Some(feature)) = (self.hard, self.items.iter().chain(listed.iter().copied()).next()) {
            let items = self.features.negative_items(feature, negatives)?;
            inputs.extend(hard.encode(positives, items, negatives)?);
        }
        let items = with(&self.items.iter().collect::<Vec<_>>())?;
        inputs.extend(items.into_iter().map(|(name, tensor)| (format!("{ITEMS}{name}"), tensor)));
        Ok(inputs)
    }

    /// For every label the first id of a sparse feature, for instance the group of a grouped metric.
    ///
    /// # Errors
    /// As [`TracedLosses::encode`].
    pub fn ids<'c>(
        &self,
        feature: &str,
        column: impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Vec<u32>, EncodeError> {
        self.labels.rows.ids(&self.features, feature, &column, rows)
    }
}
