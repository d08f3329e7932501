//! `rewire train`.

mod data;
mod deltas;
mod error;
mod export;
mod folder;
mod observer;
mod pipeline;
mod ranker;
mod ranks;
mod record;
mod report;
mod scaling;
mod tensorboard;
mod watch;

pub use error::TrainFailed;
pub use folder::FILES;
pub use observer::larger_is_better;
pub use scaling::run as scaling;

use crate::args::{Common, Train};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::with_common;
use record::Record;
use rewire::rank::RankOptions;
use rewire::runtime::ParameterUpdate;
use rewire::train::{Checkpoint, Position, Tensors, Trainer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Trains a model and writes it, alone or as ranks.
pub fn run(options: &Train, common: &Common, output: &mut Output) -> Result<(), CliError> {
    ranks::run(options, output, |group, output| match pipeline::is_asked_for(options) {
        true => pipeline::run(options, common, group, output),
        false => ranker::run(options, common, group, output),
    })
}

/// The model and data of a training.
struct Source {
    /// The model's `config.json`.
    config: String,
    /// The properties that a resumed training must share: the configurations of model and training.
    model: String,
    training: String,
    /// The files of the data.
    files: Vec<PathBuf>,
}

/// The metrics of an evaluation in order; `None` if undefined.
type Metrics = Vec<(String, Option<f64>)>;

/// The parts of a training that depend on the kind of model.
trait Learner {
    /// The name prefix of loss outputs.
    fn loss_prefix(&self) -> &'static str;

    /// The names of the metrics of evaluations.
    fn metrics(&self) -> Vec<String>;

    /// The metrics of the current model on --eval.
    fn evaluate(&self, trainer: &Trainer) -> Result<Metrics, CliError>;

    /// The tensors of the current model.
    fn tensors(&self, trainer: &Trainer) -> Result<Tensors, TrainFailed>;

    /// Those that changed since the last call.
    fn changes(&self, trainer: &Trainer) -> Result<BTreeMap<String, ParameterUpdate>, TrainFailed>;

    /// The `model.safetensors` of averages, if there are any.
    fn averages(&self, trainer: &Trainer) -> Result<Option<Vec<u8>>, TrainFailed>;

    /// The checkpoint for resuming.
    fn checkpoint(&self, trainer: &Trainer, position: Position) -> Result<Checkpoint, TrainFailed>;

    /// Continues the training of a checkpoint.
    fn resume(&self, trainer: &mut Trainer, checkpoint: &Checkpoint) -> Result<(), TrainFailed>;
}

/// Where the steps run.
fn running(common: &Common) -> RankOptions {
    with_common(common, RankOptions::default())
}
