//! Losses and metrics of imported models, as configured.

#[cfg(feature = "files")]
mod files;

use super::ids::IdRows;
use super::imported::{is_table, pipeline_of, problems_of};
use super::{Column, Problems};
use crate::rank::{RankError, RankOptions, compiled};
use rewire_families::{LOSS, SIMILARITY, Task, TracedLosses, trace_losses};
use rewire_features::NegativeRow;
use rewire_graph::{HostTensor, Mode, Ordered};
use rewire_graph_rewrite::plan::Plan;
use rewire_metrics::{Batch, Metric, MetricConfig, Read};
use rewire_runtime::{Inputs, Model, ModelOptions, Outputs, Parameters, Report, Session, block_on};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The default batch size.
const BATCH: usize = 1024;

/// Evaluates weights of an imported model: the losses and metrics of its configuration, with the reference's names. Clones share
/// the model.
///
/// ```no_run
/// use rewire::predict::{Column, Data, Evaluator};
/// use rewire::rank::RankOptions;
///
/// let (evaluator, weights) = Evaluator::load("model".as_ref(), &RankOptions::default())?;
/// let mut evaluation = evaluator.begin(&weights)?;
/// let integers = |values: &'static [i64]| Column::new(Data::I64(values.into()));
/// let columns = [("user_id", integers(&[7, 9])), ("clk", integers(&[1, 0]))];
/// evaluation.add(2, &columns, None)?;
/// for (name, value) in evaluation.evaluated().metrics {
///     println!("{name}: {value:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Evaluator(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    traced: TracedLosses,
    plan: Plan,
    options: ModelOptions,
    metrics: Vec<MetricOf>,
    batch_size: usize,
}

/// A metric of the configuration.
#[derive(Debug)]
struct MetricOf {
    name: String,
    config: MetricConfig,
    num_class: usize,
    /// The output that the metric is computed from.
    output: String,
    /// The position of its task; `None` for similarities.
    task: Option<usize>,
}

/// The row of a table of sampled items that belongs to a batch. Each column has a list of items.
#[derive(Clone, Copy, Debug)]
pub struct Negatives<'a> {
    /// The columns of the table with their names.
    pub columns: &'a [(&'a str, Column<'a>)],
    /// The row.
    pub row: usize,
}

/// Losses and metrics with the reference's names, in the order of the configuration. A value is `None` if it is undefined, such as a
/// grouped AUC without a group that has both labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluated {
    /// The metrics.
    pub metrics: Vec<(String, Option<f64>)>,
    /// The means of the losses over batches, weighted by the number of their labels.
    pub losses: Vec<(String, Option<f64>)>,
    /// The number of rows.
    pub rows: u64,
}

impl Evaluator {
    /// Parses the text of a `config.json`; errors refer to it as `name`.
    ///
    /// # Errors
    /// [`RankError::Pipeline`] lists the unsupported keys.
    pub fn new(name: &str, config: &str, options: &RankOptions) -> Result<Self, RankError> {
        let pipeline = pipeline_of(name, config)?;
        let bad = |problems| RankError::Pipeline { name: name.to_owned(), problems };
        let traced = trace_losses(&pipeline, Mode::Eval).map_err(|error| bad(problems_of(error)))?;
        let metrics = metrics(&traced).map_err(bad)?;
        let known = traced.graph.parameters().into_iter().map(|known| known.name);
        let tables: HashSet<String> = known.filter(|name| is_table(name)).collect();
        let plan = compiled(&tables, traced.graph.clone(), options.precision)?;
        let size = |key: &str| pipeline.pointer(&format!("/data_config/{key}")).and_then(Value::as_u64);
        let batch_size = size("eval_batch_size").filter(|size| *size > 0).or_else(|| size("batch_size"));
        let batch_size = batch_size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
        // Ids of columns are not checked before a run, so the run checks them.
        let options = ModelOptions { clamp_ids: false, ..options.of_model() };
        Ok(Self(Arc::new(Compiled { traced, plan, options, metrics, batch_size: batch_size.unwrap_or(BATCH) })))
    }

    /// The columns that a table must have.
    pub fn columns(&self) -> &[String] {
        &self.0.traced.columns
    }

    /// The columns that a table of negatives must have; empty for models without sampled negatives.
    pub fn negatives(&self) -> &[String] {
        &self.0.traced.negatives
    }

    /// The names of the metrics.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        self.0.metrics.iter().map(|metric| metric.name.as_str())
    }

    /// Rows of a batch: the `eval_batch_size` of the configuration, or else its `batch_size`.
    pub fn batch_size(&self) -> usize {
        self.0.batch_size
    }

    /// Starts an evaluation of weights, by the names of the model's parameters.
    ///
    /// # Errors
    /// [`RankError::Load`] names a parameter that does not fit, or the reason why no device is available.
    pub fn begin(&self, weights: impl Parameters) -> Result<Evaluation, RankError> {
        block_on(self.begin_async(weights))
    }

    /// Async version of [`Evaluator::begin`].
    ///
    /// # Errors
    /// As [`Evaluator::begin`].
    pub async fn begin_async(&self, weights: impl Parameters) -> Result<Evaluation, RankError> {
        let Compiled { traced, plan, options, metrics, .. } = &*self.0;
        let parameters = plan.parameters().map(|parameter| parameter.name);
        let ids = IdRows::new(&traced.features, parameters, |name| Ok(weights.parameter(name)?))?;
        let model = Model::load_async(plan.clone(), weights, options.clone()).await?;
        let session = model.session();
        let metrics = metrics.iter().map(|metric| metric.config.metric(metric.num_class)).collect();
        let losses = traced.losses.iter().map(|name| (name.clone(), Mean::default())).ordered_map();
        Ok(Evaluation { evaluator: self.clone(), model, session, ids, metrics, losses, rows: 0 })
    }
}

/// The metrics of all tasks.
fn metrics(traced: &TracedLosses) -> Result<Vec<MetricOf>, Problems> {
    let mut problems = Problems::default();
    let mut all = vec![];
    let mut add = |position: usize, message: &Value, of: Option<(usize, &Task)>| {
        let suffix = of.map_or("", |(_, task)| task.suffix.as_str());
        let pointer = format!("{}/metrics/{position}", of.map_or("/model_config", |(_, task)| &task.pointer));
        let config = match MetricConfig::parse(message) {
            Ok(config) => config,
            Err(error) => return problems.push(format!("{pointer}{}", error.key), error.reason),
        };
        let (name, num_class) = (config.name(suffix), of.map_or(1, |(_, task)| task.num_class));
        let kind = match (config.reads(), num_class, of.is_some()) {
            (Read::Similarity, _, false) => SIMILARITY,
            (Read::Probability | Read::Classes, 1, true) | (Read::Classes, _, true) => "probs",
            (Read::Probability, 2, true) => "probs1",
            (Read::Number, 1, true) => "y",
            _ => return problems.push(pointer, format!("`{name}` is not a metric of this task or model")),
        };
        let output = format!("{kind}{suffix}");
        let is_there = traced.outputs.iter().any(|known| known.name == output);
        if !is_there && !of.is_some_and(|(_, task)| task.is_training_only) {
            return problems
                .push(pointer, format!("`{name}` reads `{output}`, which the task's losses do not provide"));
        }
        all.push(MetricOf { name, config, num_class, output, task: of.map(|(index, _)| index) });
    };
    for (index, task) in traced.tasks.iter().enumerate() {
        let messages = task.metrics.iter().enumerate();
        messages.for_each(|(position, message)| add(position, message, Some((index, task))));
    }
    let messages = traced.matching.iter().flat_map(|matching| &matching.metrics).enumerate();
    messages.for_each(|(position, message)| add(position, message, None));
    problems.none_or(all)
}

/// A weighted mean.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn value(&self) -> Option<f64> {
        let value = self.sum / self.weight;
        value.is_finite().then_some(value)
    }
}

/// An evaluation of weights, batch by batch.
#[derive(Debug)]
pub struct Evaluation {
    evaluator: Evaluator,
    model: Model,
    session: Session,
    /// The rows of raw ids.
    ids: IdRows,
    metrics: Vec<Box<dyn Metric>>,
    losses: BTreeMap<String, Mean>,
    rows: u64,
}

impl Evaluation {
    /// Evaluates a batch: its rows, the named columns of a table, and its row of negatives for models that have them. Returns the losses
    /// of the batch.
    ///
    /// # Errors
    /// [`RankError::Columns`] names the invalid column and row; other errors are failures of the run.
    pub fn add(
        &mut self,
        rows: usize,
        columns: &[(&str, Column<'_>)],
        negatives: Option<Negatives<'_>>,
    ) -> Result<Vec<(String, f64)>, RankError> {
        block_on(self.add_async(rows, columns, negatives))
    }

    /// Async version of [`Evaluation::add`].
    ///
    /// # Errors
    /// As [`Evaluation::add`].
    pub async fn add_async(
        &mut self,
        rows: usize,
        columns: &[(&str, Column<'_>)],
        negatives: Option<Negatives<'_>>,
    ) -> Result<Vec<(String, f64)>, RankError> {
        let Compiled { traced, plan, metrics, .. } = &*self.evaluator.0;
        let column = |name: &str| find(columns, name);
        let sampled = |name: &str| negatives.and_then(|negatives| find(negatives.columns, name));
        let row = negatives.map(|negatives| NegativeRow { column: &sampled, row: negatives.row });
        let mut encoded = traced.encode(column, 0..rows, row)?;
        self.ids.look_up(&traced.features, &mut encoded);
        let mut inputs = Inputs::new();
        for (name, tensor) in &encoded {
            if plan.inputs().any(|input| input.name == *name) {
                inputs.insert(name.clone(), tensor.clone());
            }
        }
        let outputs = self.session.run_async(&inputs).await?;
        for (metric, of) in self.metrics.iter_mut().zip(metrics) {
            let Some(predictions) = outputs.get(&of.output).map(HostTensor::to_f32) else { continue };
            let labels = match of.task.and_then(|task| traced.tasks.get(task)) {
                Some(task) => task.labels(&encoded),
                None => own_items(traced, &outputs),
            };
            let groups = of.config.grouping_key().map(|key| traced.ids(key, column, 0..rows)).transpose()?;
            let groups = groups.unwrap_or_default();
            metric.add(&Batch { predictions: &predictions, labels: &labels, groups: &groups });
        }
        self.rows += rows as u64;
        let losses = traced.losses.iter().map(|name| {
            let loss = outputs.get(&format!("{LOSS}{name}")).and_then(|loss| loss.to_f64().first().copied());
            (name.clone(), loss.unwrap_or(f64::NAN))
        });
        let losses: Vec<(String, f64)> = losses.collect();
        let labels = traced.tasks.iter().map(|task| task.labels(&encoded).len()).find(|count| *count > 0);
        let weight = labels.unwrap_or_else(|| own_items(traced, &outputs).len()) as f64;
        for (name, loss) in &losses {
            let mean = self.losses.entry(name.clone()).or_default();
            mean.sum += loss * weight;
            mean.weight += weight;
        }
        Ok(losses)
    }

    /// Describes where the model runs.
    pub fn report(&self) -> Report {
        self.model.report()
    }

    /// Losses and metrics of all batches so far.
    pub fn evaluated(&self) -> Evaluated {
        let Compiled { traced, metrics, .. } = &*self.evaluator.0;
        let metrics = metrics.iter().zip(&self.metrics);
        let metrics = metrics.map(|(of, metric)| (of.name.clone(), metric.value().filter(|value| value.is_finite())));
        let mut losses: Vec<(String, Option<f64>)> = vec![];
        let of_tasks = traced.tasks.iter().flat_map(|task| &task.losses);
        for name in of_tasks.chain(&traced.losses) {
            if losses.iter().all(|(known, _)| known != name) {
                losses.push((name.clone(), self.losses.get(name).and_then(Mean::value)));
            }
        }
        Evaluated { metrics: metrics.collect(), losses, rows: self.rows }
    }
}

fn find<'c>(columns: &'c [(&str, Column<'c>)], name: &str) -> Option<&'c Column<'c>> {
    columns.iter().find(|(known, _)| *known == name).map(|(_, column)| column)
}

/// The column of each row's own item among its similarities.
fn own_items(traced: &TracedLosses, outputs: &Outputs) -> Vec<f64> {
    let rows = outputs.get(SIMILARITY).and_then(|similarity| similarity.shape().first().copied()).unwrap_or(0);
    let in_batch = traced.matching.as_ref().is_some_and(|matching| matching.in_batch);
    (0..rows).map(|row| if in_batch { row as f64 } else { 0.0 }).collect()
}
