//! Training of TorchEasyRec pipelines.

mod config;
mod growing;
mod initial;

use super::{Changes, Checkpoint, Objective, Position, RankTrainError, TrainConfig, TrainError, Trainer};
use crate::predict::{Column, Imported};
use crate::rank::RankOptions;
use config::{Assignment, train_config};
use rewire_families::{TOTAL, TraceError, TracedLosses, trace_losses};
use rewire_features::{EncodeError, NegativeRow, Problem, Problems};
use rewire_graph::op::Input;
use rewire_graph::{DType, HostTensor, Mode, StoredTypeError, TensorSizeError};
use rewire_hstu::models::{ParameterSpec, parameters};
use rewire_runtime::{Inputs, ParameterUpdate};
use rewire_train::distributed::Collectives;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name suffixes of running statistics and of the number of batches they cover.
const STATISTICS: [&str; 2] = ["running_mean", "num_batches_tracked"];

/// A pipeline to train as the reference does: losses, optimizers, schedules and the number of steps are those of its configuration.
///
/// The sharding plan of a checkpoint determines which tables the sparse optimizer trains: all but those that are `data_parallel` in it,
/// which the dense optimizer trains with all other parameters. Without a plan the sparse optimizer trains all tables, except those
/// whose `sharding_types` are only `data_parallel`. The reference's planner decides by sizes and devices instead.
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
        let learned = parameters(&traced.graph);
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

    /// Makes trainers ranks of a group; see [`Trainer::of_rank`].
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
        let shapes = self.tensors.values().map(|known| (known.name.clone(), known.shape.clone())).collect();
        let mut all = initial::initial(&self.traced.features, self.wide_init_fn.as_deref(), &shapes, seed)?;
        let [mean, count] = STATISTICS;
        let norms = shapes.keys().filter_map(|name| name.strip_suffix(mean));
        for norm in norms {
            all.insert(format!("{norm}{count}"), HostTensor::i64([], &[0])?);
        }
        let buffers = self.traced.buffers.iter().chain(&self.traced.unread);
        all.extend(buffers.map(|buffer| (buffer.name.clone(), buffer.value.clone())));
        Ok(all)
    }

    /// Starts a training from `tensors`, with fresh optimizers.
    ///
    /// # Errors
    /// [`RankTrainError`] names the invalid key or tensor, or the reason why no device is available.
    pub fn trainer(&self, tensors: &Tensors) -> Result<Trainer, RankTrainError> {
        let (initial, options) = (|name: &str| tensors.get(name).cloned(), self.options.of_model());
        let objective = self.objective.clone().growing(self.growing());
        let mut trainer = match &self.group {
            Some(group) => Trainer::of_rank(&objective, &self.config, initial, options, group.clone())?,
            None => Trainer::new(&objective, &self.config, initial, options)?,
        };
        for (name, map) in self.id_maps(tensors)? {
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

    /// All tensors of the model in its current state: those of `before`, which the training started from, with the trained tensors
    /// replaced and in the original types.
    ///
    /// # Errors
    /// [`RankTrainError`] where parameters cannot be read.
    pub fn tensors(&self, trainer: &Trainer, before: &Tensors) -> Result<Tensors, RankTrainError> {
        let mut all = before.clone();
        for (name, tensor) in trainer.parameters()? {
            let stored = self.stored(&name, tensor)?;
            all.insert(name, stored);
        }
        all.extend(self.ids(trainer));
        all.extend(self.counts(trainer, before)?);
        Ok(all)
    }

    /// The tensors of [`PipelineTask::tensors`] that changed since the last call; see [`Trainer::changes`].
    ///
    /// # Errors
    /// As [`Trainer::changes`].
    pub fn changes(
        &self,
        trainer: &Trainer,
        before: &Tensors,
    ) -> Result<BTreeMap<String, ParameterUpdate>, RankTrainError> {
        let Changes { whole, rows } = trainer.changes()?;
        let mut all = BTreeMap::new();
        for (name, tensor) in whole {
            let stored = self.stored(&name, tensor)?;
            all.insert(name, stored.into());
        }
        for (name, (rows, values)) in rows {
            let values = self.stored(&name, values)?;
            all.insert(name, ParameterUpdate::Rows { rows, values });
        }
        all.extend(self.counts(trainer, before)?.into_iter().map(|(name, tensor)| (name, tensor.into())));
        Ok(all)
    }

    /// A parameter in its original type.
    fn stored(&self, name: &str, tensor: HostTensor) -> Result<HostTensor, TrainError> {
        let dtype = self.tensors.get(name).map_or(DType::F32, |known| known.dtype);
        tensor.stored_as(dtype).map_err(|error| match error {
            StoredTypeError::Size(error) => TrainError::from(error),
            StoredTypeError::Type { expected, actual, .. } => TrainError::Parameter {
                name: name.to_owned(),
                expected: expected.to_string(),
                actual: actual.to_string(),
            },
        })
    }

    /// The numbers of batches that running statistics cover.
    fn counts(&self, trainer: &Trainer, before: &Tensors) -> Result<Tensors, TrainError> {
        let [mean, count] = STATISTICS;
        let norms = self.tensors.keys().filter_map(|name| name.strip_suffix(mean));
        let norms = norms.filter(|norm| self.objective.graph().states().contains(&format!("{norm}{mean}")));
        let counts = norms.map(|norm| {
            let name = format!("{norm}{count}");
            let seen = before.get(&name).and_then(|seen| seen.to_i64().first().copied()).unwrap_or(0);
            let seen = seen.saturating_add(i64::try_from(trainer.steps()).unwrap_or(i64::MAX));
            Ok((name, HostTensor::i64([], &[seen])?))
        });
        counts.collect()
    }

    /// The checkpoint to resume the training from.
    ///
    /// # Errors
    /// As [`PipelineTask::tensors`].
    pub fn checkpoint(&self, trainer: &Trainer, position: Position) -> Result<Checkpoint, RankTrainError> {
        Ok(Checkpoint { steps: trainer.steps(), position, states: trainer.states()?, metadata: BTreeMap::new() })
    }

    /// Resumes a training of the same pipeline from a checkpoint.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`](super::TrainError::Checkpoint) names a missing tensor.
    pub fn resume(&self, trainer: &mut Trainer, checkpoint: &Checkpoint) -> Result<(), RankTrainError> {
        Ok(trainer.resume(checkpoint.steps, |name| checkpoint.states.get(name).cloned())?)
    }
}
