use super::initial::Drawn;
use super::written::{Written, write};
use super::{Changes, Examples, InitialValues, RankTrainError, TrainConfig, Trainer, objective};
use crate::delta;
use crate::rank::{Config, RankError, RankOptions, Ranker, capacity, check_buffers, schema};
use crate::weights::{Weights, serialize};
use rewire_graph::{DType, HostTensor};
use rewire_runtime::ParameterUpdate;
use rewire_train::distributed::Collectives;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// A ranking model to train, and the device of the training.
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

    /// Makes the trainers ranks of a group; see [`Trainer::of_rank`].
    #[must_use]
    pub fn with_group(self, group: Option<Arc<dyn Collectives>>) -> Self {
        Self { group, ..self }
    }

    /// Starts a training from `weights`; without weights, from [`initial`](super::initial) values with the
    /// configuration's `shuffle_seed`.
    ///
    /// # Errors
    /// [`RankTrainError`] names the invalid key or tensor, or the reason why no device is available.
    pub fn trainer(&self, train: &TrainConfig, weights: Option<&Weights<'_>>) -> Result<Trainer, RankTrainError> {
        if let Some(weights) = weights {
            check_buffers(&self.config, weights)?;
        }
        let objective = objective(&self.config)?;
        let begin: Box<dyn InitialValues> = match weights {
            Some(weights) => Box::new(weights.tensors().map_err(RankError::from)?),
            None => Box::new(Drawn::of(&objective.graph().parameters(), train.shuffle_seed.unwrap_or(0))),
        };
        let (options, group) = (self.options.of_model(), self.group.clone());
        Ok(Trainer::with_group(&objective, train, begin.as_ref(), options, group)?)
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
    /// [`RankTrainError`] if parameters cannot be read.
    pub fn weights(&self, trainer: &Trainer) -> Result<Vec<u8>, RankTrainError> {
        Ok(serialize(&self.tensors(trainer)?, &BTreeMap::new()).map_err(RankError::from)?)
    }

    /// All tensors of the model in its current state.
    ///
    /// # Errors
    /// [`RankTrainError`] if parameters cannot be read.
    pub fn tensors(&self, trainer: &Trainer) -> Result<BTreeMap<String, HostTensor>, RankTrainError> {
        self.whole(trainer.parameters()?)
    }

    /// The tensors of the model that changed since the last call; see [`Trainer::changes`].
    ///
    /// # Errors
    /// As [`Trainer::changes`].
    pub fn changes(&self, trainer: &Trainer) -> Result<delta::Changes, RankTrainError> {
        let Changes { whole, rows, ids } = trainer.changes()?;
        let whole = whole.into_iter().map(|(name, tensor)| (name, ParameterUpdate::Whole(tensor)));
        let rows = rows.into_iter().map(|(name, (rows, values))| (name, ParameterUpdate::Rows { rows, values }));
        Ok(delta::Changes { parameters: whole.chain(rows).collect(), ids })
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

    /// Writes [`RankTask::weights`] with metadata, without gathering tables that ranks divide. All ranks participate;
    /// the first one writes the file to `out`.
    ///
    /// # Errors
    /// As [`RankTask::weights`].
    pub fn write_weights(
        &self,
        trainer: &Trainer,
        metadata: &BTreeMap<String, String>,
        out: &mut dyn Write,
    ) -> Result<(), RankTrainError> {
        self.write(trainer, metadata, out, |name| name.to_owned())
    }

    /// Writes [`RankTask::averages`] in the same way; writes nothing if there are no averages.
    ///
    /// # Errors
    /// As [`RankTask::weights`].
    pub fn write_averages(&self, trainer: &Trainer, out: &mut dyn Write) -> Result<(), RankTrainError> {
        self.write(trainer, &BTreeMap::new(), out, |name| trainer.average(name).unwrap_or_else(|| name.to_owned()))
    }

    fn write(
        &self,
        trainer: &Trainer,
        metadata: &BTreeMap<String, String>,
        out: &mut dyn Write,
        state: impl Fn(&str) -> String,
    ) -> Result<(), RankTrainError> {
        let states = trainer.learned().iter();
        let states = states.map(|name| (name.clone(), Written { state: state(name), dtype: DType::F32 })).collect();
        let buffers = self.config.buffers()?.into_iter().map(|buffer| (buffer.name, buffer.value));
        let others = trainer.frozen().clone().into_iter().chain(buffers).collect();
        write(trainer, &states, &others, metadata, out)
    }

    /// Parameters and the tensors that follow from the configuration.
    fn whole(&self, mut tensors: BTreeMap<String, HostTensor>) -> Result<BTreeMap<String, HostTensor>, RankTrainError> {
        tensors.extend(self.config.buffers()?.into_iter().map(|buffer| (buffer.name, buffer.value)));
        Ok(tensors)
    }

    /// A ranker with the model's current parameters.
    ///
    /// # Errors
    /// As [`Ranker::new`].
    pub fn ranker(&self, trainer: &Trainer) -> Result<Ranker, RankTrainError> {
        let parsed = Weights::parse(self.weights(trainer)?).map_err(RankError::from)?;
        Ok(Ranker::new(&self.config, &parsed, &self.options)?)
    }
}
