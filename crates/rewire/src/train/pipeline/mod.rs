//! Training of TorchEasyRec pipelines.

mod config;
mod growing;
mod initial;

use super::written::{Written, not_stored, write};
use super::{Changes, InitialValues, Objective, RankTrainError, TrainConfig, TrainError, Trainer};
use crate::delta;
use crate::predict::{Column, Imported};
use crate::rank::RankOptions;
use config::{Assignment, train_config};
use rewire_families::{TOTAL, TraceError, TracedLosses, trace_losses};
use rewire_features::{EncodeError, NegativeRow, Problem, Problems};
use rewire_graph::ParameterSpec;
use rewire_graph::op::Input;
use rewire_graph::{DType, HostTensor, Mode, TensorSizeError};
use rewire_runtime::{Inputs, ParameterUpdate};
use rewire_train::distributed::Collectives;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// Name suffixes of running statistics and of the number of batches they cover.
const STATISTICS: [&str; 2] = ["running_mean", "num_batches_tracked"];

/// A pipeline to train as in the reference: losses, optimizers, schedules and the number of steps are those of its
/// configuration.
///
/// The sharding plan of a checkpoint determines which tables the sparse optimizer trains: all tables except those that
/// are `data_parallel` in the plan, which the dense optimizer trains with all other parameters. Without a plan the
/// sparse optimizer trains all tables, except those whose `sharding_types` are only `data_parallel`. The reference's
/// planner decides by sizes and devices instead.
#[derive(Clone, Debug)]
pub struct PipelineTask {
    traced: Arc<TracedLosses>,
    objective: Objective,
    config: TrainConfig,
    /// Names, types and shapes of the tensors for inference and training.
    tensors: BTreeMap<String, ParameterSpec>,
    wide_init_fn: Option<String>,
    /// Inputs of the graph.
    inputs: BTreeSet<String>,
    options: RankOptions,
    group: Option<Arc<dyn Collectives>>,
}

/// The prefix of the names of inputs with the labels of rows.
const LABELS: &str = "labels.";

/// The tensors of a model with the reference's names, without the leading `model.`.
pub type Tensors = BTreeMap<String, HostTensor>;

impl PipelineTask {
    /// Creates the task from the fields of an `EasyRecConfig`, with the reference's names, and the `plan` of a checkpoint, if
    /// there is one.
    ///
    /// # Errors
    /// [`RankTrainError::Pipeline`] lists the unsupported parts of the model, [`TrainError::Config`] those of `train_config`.
    pub fn new(pipeline: &Value, plan: Option<&Value>, options: RankOptions) -> Result<Self, RankTrainError> {
        let traced = trace_losses(pipeline, Mode::Train).map_err(|error| match error {
            TraceError::Config(problems) => RankTrainError::Pipeline(problems),
            other => RankTrainError::Pipeline(Problems(vec![Problem::new("/model_config", other.to_string())])),
        })?;
        let in_use = Imported::new(pipeline).map_err(RankTrainError::Pipeline)?;
        let learned = traced.graph.parameters();
        let names = || learned.iter().map(|known| known.name.as_str());
        let assignment = Assignment::new(pipeline, plan, &traced, names());
        let dense = || names().filter(|name| !assignment.tables.iter().any(|table| table == name));
        let config = train_config(pipeline, dense().collect::<Vec<_>>().into_iter())?;
        let input = |id| traced.graph.op::<Input>(id).map(|input| input.name.clone());
        let inputs: BTreeSet<String> = traced.graph.ids().filter_map(input).collect();
        let objective = Objective::new(traced.graph.clone(), TOTAL).tables(assignment.tables).frozen(assignment.frozen);
        let objective = objective.sharded(assignment.sharding);
        let label = inputs.iter().find(|name| name.starts_with(LABELS));
        let objective = label.into_iter().fold(objective, |objective, label| objective.examples(label));
        let model = pipeline.get("model_config").and_then(Value::as_object).into_iter().flatten();
        let wide = model.filter_map(|(_, message)| message.get("wide_init_fn")?.as_str()).next();
        let tensors = learned.into_iter().chain(in_use.parameters()).map(|known| (known.name.clone(), known)).collect();
        Ok(Self {
            objective,
            config,
            tensors,
            wide_init_fn: wide.map(str::to_owned),
            inputs,
            traced: Arc::new(traced),
            options,
            group: None,
        })
    }

    /// Makes the trainers ranks of a group; see [`Trainer::of_rank`].
    #[must_use]
    pub fn with_group(self, group: Option<Arc<dyn Collectives>>) -> Self {
        Self { group, ..self }
    }

    /// The training configuration.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Replaces the training configuration, for instance to change steps or memory.
    #[must_use]
    pub fn with_config(self, config: TrainConfig) -> Self {
        Self { config, ..self }
    }

    /// The columns that a table of examples must have.
    pub fn columns(&self) -> &[String] {
        &self.traced.columns
    }

    /// The columns that the table of negatives must have, whose row `b` belongs to batch `b`; empty for models without
    /// negatives.
    pub fn negatives(&self) -> &[String] {
        &self.traced.negatives
    }

    /// The tables of the sparse optimizer.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.objective.table_names()
    }

    /// The names of the losses, in the order of their sum.
    pub fn losses(&self) -> &[String] {
        &self.traced.losses
    }

    /// Initial tensors of a training without a checkpoint, drawn from a seed. Tables use their `init_fn` or are uniform in
    /// +-1/sqrt(rows), other parameters are initialized like torch's modules.
    ///
    /// # Errors
    /// [`TensorSizeError`] if there is not enough memory for them.
    pub fn initial(&self, seed: u64) -> Result<Tensors, TensorSizeError> {
        self.drawn(seed, |_| true)
    }

    /// The initial tensors of some names.
    fn drawn(&self, seed: u64, is_asked: impl Fn(&str) -> bool) -> Result<Tensors, TensorSizeError> {
        let begin = Begun { task: self, begin: &Begin::Seed(seed) };
        let mut all = Tensors::new();
        for name in self.tensors.keys().filter(|name| is_asked(name)) {
            all.extend(begin.tensor(name)?.map(|tensor| (name.clone(), tensor)));
        }
        let [mean, count] = STATISTICS;
        for norm in self.tensors.keys().filter_map(|name| name.strip_suffix(mean)) {
            all.insert(format!("{norm}{count}"), HostTensor::i64([], &[0])?);
        }
        let buffers = self.traced.buffers.iter().chain(&self.traced.unread);
        all.extend(buffers.map(|buffer| (buffer.name.clone(), buffer.value.clone())));
        Ok(all)
    }

    /// Starts a training with fresh optimizers.
    ///
    /// # Errors
    /// [`RankTrainError`] names the invalid key or tensor, or the reason why no device is available.
    pub fn trainer(&self, begin: &Begin) -> Result<Trainer, RankTrainError> {
        let (begin, options) = (Begun { task: self, begin }, self.options.of_model());
        let objective = self.objective.clone().growing(self.growing());
        let mut trainer = Trainer::with_group(&objective, &self.config, &begin, options, self.group.clone())?;
        for (name, map) in self.id_maps(begin.begin)? {
            trainer.set_id_map(&name, map);
        }
        Ok(trainer)
    }

    /// The inputs of a step from all rows of a batch, given as named columns, and for models with negatives from a row of their table.
    ///
    /// # Errors
    /// [`EncodeError`] names the invalid column and row.
    pub fn inputs(
        &self,
        rows: usize,
        columns: &[(&str, Column<'_>)],
        negatives: Option<NegativeRow<'_, '_>>,
    ) -> Result<Inputs, EncodeError> {
        let column = |name: &str| columns.iter().find(|(known, _)| *known == name).map(|(_, column)| column);
        let mut inputs = Inputs::new();
        for (name, tensor) in self.traced.encode(column, 0..rows, negatives)? {
            if self.inputs.contains(&name) {
                inputs.insert(name, tensor);
            }
        }
        Ok(inputs)
    }

    /// All tensors of the model in its current state: the initial ones, with the trained tensors replaced, in the
    /// original types. All ranks of a training participate.
    ///
    /// # Errors
    /// [`RankTrainError`] if parameters cannot be read.
    pub fn tensors(&self, trainer: &Trainer, begin: &Begin) -> Result<Tensors, RankTrainError> {
        self.tensors_of(trainer, begin, |_| true)
    }

    /// [`PipelineTask::tensors`] without the given names.
    ///
    /// # Errors
    /// As [`PipelineTask::tensors`].
    pub fn tensors_of(
        &self,
        trainer: &Trainer,
        begin: &Begin,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Tensors, RankTrainError> {
        let mut all = self.others(trainer, begin)?;
        for (name, tensor) in trainer.parameters_of(is_asked)? {
            let stored = self.stored(&name, tensor)?;
            all.insert(name, stored);
        }
        Ok(all)
    }

    /// The tensors of [`PipelineTask::tensors`] that changed since the last call; see [`Trainer::changes`].
    ///
    /// # Errors
    /// As [`Trainer::changes`].
    pub fn changes(&self, trainer: &Trainer, begin: &Begin) -> Result<delta::Changes, RankTrainError> {
        let Changes { whole, rows, ids } = trainer.changes()?;
        let mut all = BTreeMap::new();
        for (name, tensor) in whole {
            let stored = self.stored(&name, tensor)?;
            all.insert(name, stored.into());
        }
        for (name, (rows, values)) in rows {
            let values = self.stored(&name, values)?;
            all.insert(name, ParameterUpdate::Rows { rows, values });
        }
        all.extend(self.counts(trainer, begin)?.into_iter().map(|(name, tensor)| (name, tensor.into())));
        Ok(delta::Changes { parameters: all, ids })
    }

    /// Writes [`PipelineTask::tensors`] as `model.safetensors` with metadata, without gathering tables that ranks
    /// divide. All ranks participate; the first one writes the file to `out`.
    ///
    /// # Errors
    /// As [`PipelineTask::tensors`].
    pub fn write_weights(
        &self,
        trainer: &Trainer,
        begin: &Begin,
        metadata: &BTreeMap<String, String>,
        out: &mut dyn Write,
    ) -> Result<(), RankTrainError> {
        let written = |name: &String| Written { state: name.clone(), dtype: self.dtype(name) };
        let states = trainer.learned().iter().map(|name| (name.clone(), written(name))).collect();
        write(trainer, &states, &self.others(trainer, begin)?, metadata, out)
    }

    /// A parameter, or some rows of it, in its type in files.
    ///
    /// # Errors
    /// [`TrainError::Parameter`] if its values cannot be stored in that type.
    pub fn stored(&self, name: &str, tensor: HostTensor) -> Result<HostTensor, RankTrainError> {
        Ok(tensor.stored_as(self.dtype(name)).map_err(|error| not_stored(name, error))?)
    }

    /// The type of a parameter in files.
    fn dtype(&self, name: &str) -> DType {
        self.tensors.get(name).map_or(DType::F32, |known| known.dtype)
    }

    /// The tensors that are not trained.
    fn others(&self, trainer: &Trainer, begin: &Begin) -> Result<Tensors, RankTrainError> {
        let is_learned = |name: &str| trainer.learned().iter().any(|learned| learned == name);
        let mut all = match begin {
            Begin::Seed(seed) => self.drawn(*seed, |name| !is_learned(name))?,
            Begin::Tensors(tensors) => tensors.clone().into_iter().filter(|(name, _)| !is_learned(name)).collect(),
        };
        for (name, tensor) in trainer.frozen() {
            all.insert(name.clone(), self.stored(name, tensor.clone())?);
        }
        all.extend(self.counts(trainer, begin)?);
        all.extend(self.ids(trainer));
        Ok(all)
    }

    /// The numbers of batches that running statistics cover.
    fn counts(&self, trainer: &Trainer, begin: &Begin) -> Result<Tensors, TrainError> {
        let [mean, count] = STATISTICS;
        let states = self.objective.graph().states();
        let counts = states.iter().filter_map(|name| name.strip_suffix(mean)).map(|norm| {
            let name = format!("{norm}{count}");
            let before = match begin {
                Begin::Seed(_) => None,
                Begin::Tensors(tensors) => tensors.get(&name),
            };
            let seen = before.and_then(|before| before.to_i64().first().copied()).unwrap_or(0);
            let seen = seen.saturating_add(i64::try_from(trainer.steps()).unwrap_or(i64::MAX));
            Ok((name, HostTensor::i64([], &[seen])?))
        });
        counts.collect()
    }
}

/// The initial tensors of a pipeline's training.
#[derive(Clone, Debug)]
pub enum Begin {
    /// The tensors of [`PipelineTask::initial`] for a seed. Each rank draws only the rows that it holds.
    Seed(u64),
    /// The tensors of a checkpoint.
    Tensors(Tensors),
}

struct Begun<'a> {
    task: &'a PipelineTask,
    begin: &'a Begin,
}

impl Begun<'_> {
    fn drawn(&self, seed: u64, name: &str, rows: Option<Range<usize>>) -> Result<Option<HostTensor>, TensorSizeError> {
        let PipelineTask { traced, wide_init_fn, tensors, .. } = self.task;
        initial::initial(&traced.features, wide_init_fn.as_deref(), tensors, (name, seed), rows)
    }
}

impl InitialValues for Begun<'_> {
    fn tensor(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        match self.begin {
            Begin::Seed(seed) => self.drawn(*seed, name, None),
            Begin::Tensors(tensors) => Ok(tensors.get(name).cloned()),
        }
    }

    fn rows(&self, name: &str, shape: &[usize], rows: Range<usize>) -> Result<Option<HostTensor>, TensorSizeError> {
        match self.begin {
            Begin::Seed(seed) => self.drawn(*seed, name, Some(rows)),
            Begin::Tensors(tensors) => tensors.rows(name, shape, rows),
        }
    }
}
