use super::{Changes, Examples, Position, RankTrainError, TrainConfig, Trainer, checkpoint::Checkpoint, objective};
use crate::rank::{Config, RankError, RankOptions, Ranker, capacity, check_buffers, schema};
use crate::weights::{Weights, serialize};
use rewire_graph::HostTensor;
use rewire_hstu::models;
use rewire_runtime::ParameterUpdate;
use rewire_train::distributed::Collectives;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A ranking model to train, and where it runs.
///
/// ```no_run
/// use rewire::Mapping;
/// use rewire::rank::{RankOptions, read_config};
/// use rewire::train::{RankTask, TrainConfig};
/// use rewire::weights::Weights;
///
/// let folder = "model".as_ref() as &std::path::Path;
/// let task = RankTask::new(read_config(folder, Mapping::default())?, RankOptions::default());
/// let config = TrainConfig::from_json(&std::fs::read_to_string("train.json")?)?;
/// let weights = Weights::read(&folder.join("model.safetensors"))?;
/// let mut trainer = task.trainer(&config, Some(&weights))?;
///
/// let (examples, mut preparer) = (task.examples(&trainer)?, trainer.preparer());
/// # let users: Vec<rewire::rank::Batch> = vec![];
/// for batch in users {
///     let report = trainer.step(preparer.prepare(vec![examples.inputs(&batch)?])?)?;
///     println!("{}: {}", report.step, report.loss);
/// }
/// std::fs::write("trained/model.safetensors", task.weights(&trainer)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RankTask {
    config: Config,
    options: RankOptions,
    group: Option<Arc<dyn Collectives>>,
}

impl RankTask {
    /// The model of a configuration.
    pub fn new(config: Config, options: RankOptions) -> Self {
        Self { config, options, group: None }
    }

    /// Makes trainers ranks of a group; see [`Trainer::of_rank`].
    #[must_use]
    pub fn with_group(self, group: Option<Arc<dyn Collectives>>) -> Self {
        Self { group, ..self }
    }

    /// Starts a training from `weights`, or without them from [`initial`](super::initial) values with the configuration's
    /// `shuffle_seed`.
    ///
    /// # Errors
    /// [`RankTrainError`] names the invalid key or tensor, or the reason why no device is available.
    pub fn trainer(&self, train: &TrainConfig, weights: Option<&Weights<'_>>) -> Result<Trainer, RankTrainError> {
        if let Some(weights) = weights {
            check_buffers(&self.config, weights)?;
        }
        let objective = objective(&self.config)?;
        let shapes = models::parameters(objective.graph());
        let shapes = shapes.into_iter().map(|parameter| (parameter.name, parameter.shape)).collect();
        let begin = match weights {
            Some(weights) => weights.tensors().map_err(RankError::from)?,
            None => super::initial(&shapes, train.shuffle_seed.unwrap_or(0))?,
        };
        let (initial, options) = (|name: &str| begin.get(name).cloned(), self.options.of_model());
        Ok(match &self.group {
            Some(group) => Trainer::of_rank(&objective, train, initial, options, group.clone())?,
            None => Trainer::new(&objective, train, initial, options)?,
        })
    }

    /// Creates the converter from users to the inputs of a training's steps.
    ///
    /// # Errors
    /// [`RankTrainError::Rank`] if a sequence has no room for candidates.
    pub fn examples(&self, trainer: &Trainer) -> Result<Examples, RankTrainError> {
        let inputs = self.config.inputs();
        Ok(Examples {
            schema: Arc::new(schema(&inputs, trainer.plan())),
            inputs: inputs.into_iter().map(|spec| (spec.name, spec.dtype)).collect(),
            capacity: capacity(&self.config, &self.options)?,
        })
    }

    /// The `model.safetensors` of the model in its current state.
    ///
    /// # Errors
    /// [`RankTrainError`] where parameters cannot be read.
    pub fn weights(&self, trainer: &Trainer) -> Result<Vec<u8>, RankTrainError> {
        Ok(serialize(&self.tensors(trainer)?, &BTreeMap::new()).map_err(RankError::from)?)
    }

    /// All tensors of the model in its current state.
    ///
    /// # Errors
    /// [`RankTrainError`] where parameters cannot be read.
    pub fn tensors(&self, trainer: &Trainer) -> Result<BTreeMap<String, HostTensor>, RankTrainError> {
        self.whole(trainer.parameters()?)
    }

    /// The tensors of the model that changed since the last call; see [`Trainer::changes`].
    ///
    /// # Errors
    /// As [`Trainer::changes`].
    pub fn changes(&self, trainer: &Trainer) -> Result<BTreeMap<String, ParameterUpdate>, RankTrainError> {
        let Changes { whole, rows } = trainer.changes()?;
        let whole = whole.into_iter().map(|(name, tensor)| (name, ParameterUpdate::Whole(tensor)));
        let rows = rows.into_iter().map(|(name, (rows, values))| (name, ParameterUpdate::Rows { rows, values }));
        Ok(whole.chain(rows).collect())
    }

    /// The `model.safetensors` of the averages of the model; `None` without `ema` in the configuration.
    ///
    /// # Errors
    /// As [`RankTask::weights`].
    pub fn averages(&self, trainer: &Trainer) -> Result<Option<Vec<u8>>, RankTrainError> {
        let averages = trainer.averages()?;
        if averages.is_empty() {
            return Ok(None);
        }
        let mut all = trainer.parameters()?;
        all.extend(averages);
        Ok(Some(serialize(&self.whole(all)?, &BTreeMap::new()).map_err(RankError::from)?))
    }

    /// Parameters and the tensors that follow from the configuration.
    fn whole(&self, mut tensors: BTreeMap<String, HostTensor>) -> Result<BTreeMap<String, HostTensor>, RankTrainError> {
        tensors.extend(self.config.buffers()?.into_iter().map(|buffer| (buffer.name, buffer.value)));
        Ok(tensors)
    }

    /// A ranker of the model in its current state.
    ///
    /// # Errors
    /// As [`Ranker::new`].
    pub fn ranker(&self, trainer: &Trainer) -> Result<Ranker, RankTrainError> {
        let parsed = Weights::parse(self.weights(trainer)?).map_err(RankError::from)?;
        Ok(Ranker::new(&self.config, &parsed, &self.options)?)
    }

    /// The checkpoint to resume the training from, at a position in the data.
    ///
    /// # Errors
    /// As [`RankTask::weights`].
    pub fn checkpoint(&self, trainer: &Trainer, position: Position) -> Result<Checkpoint, RankTrainError> {
        let metadata = BTreeMap::new();
        Ok(Checkpoint { steps: trainer.steps(), position, states: trainer.states()?, metadata })
    }

    /// Resumes a training of the same model and configuration from a checkpoint.
    ///
    /// # Errors
    /// [`TrainError::Checkpoint`](super::TrainError::Checkpoint) names a missing tensor.
    pub fn resume(&self, trainer: &mut Trainer, checkpoint: &Checkpoint) -> Result<(), RankTrainError> {
        Ok(trainer.resume(checkpoint.steps, |name| checkpoint.states.get(name).cloned())?)
    }
}
