//! `rewire train`.

mod data;
mod deltas;
mod error;
mod export;
mod folder;
mod listener;
mod observer;
mod pipeline;
mod ranker;
mod ranks;
mod record;
mod report;
mod scaling;
mod tensorboard;
mod watch;

pub use error::{TrainFailed, TrainingError};
pub use folder::FILES;
pub use listener::Listener;
pub use observer::{Best, larger_is_better};
pub use ranks::Group;
pub use report::{Rates, StepLine, Summary};
pub use scaling::run as scaling;

use crate::args::{Common, Train};
use crate::error::CliError;
use crate::output::Output;
use crate::rank::with_common;
use listener::{Silent, Terminal};
use record::Record;
use report::SummaryLine;
use rewire::delta::Changes;
use rewire::rank::RankOptions;
use rewire::train::distributed::{Collectives, in_process};
use rewire::train::{RankTrainError, Trainer};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Trains a model and writes it, alone, as --ranks, or as a rank of MPI. Only the first rank prints and writes.
pub fn run(options: &Train, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let trained = match (ranks::started(), options.ranks) {
        (Some(_), Some(_)) => return Err(TrainFailed::RanksTwice.into()),
        (Some(ranks), None) if ranks > 1 => ranks::of_mpi(ranks, timeout(options), |group| {
            let is_first = group.rank() == 0;
            let summary = train_ranks(options, common, Some(group), &mut Terminal::new(output, common.json))?;
            Ok(is_first.then_some(summary))
        })?,
        _ => Some(train_ranks(options, common, None, &mut Terminal::new(output, common.json))?),
    };
    let command = if pipeline::is_asked_for(options) { "predict" } else { "rank" };
    match trained {
        None => Ok(()),
        Some(summary) if common.json => Ok(output.json(&SummaryLine { summary })?),
        Some(summary) => Ok(summary.print(&options.out.display().to_string(), command, output)?),
    }
}

/// Trains a model and writes it, as `rewire train` does: alone, as a rank of `group`, or as `options.ranks` of this process. The first
/// rank reports to the listener.
///
/// # Errors
/// [`TrainingError`] has the message and the code of its cause.
pub fn train(
    options: &Train,
    common: &Common,
    group: Group,
    listener: &mut dyn Listener,
) -> Result<Summary, TrainingError> {
    Ok(train_ranks(options, common, group, listener)?)
}

fn train_ranks(
    options: &Train,
    common: &Common,
    group: Group,
    listener: &mut dyn Listener,
) -> Result<Summary, CliError> {
    match (group, options.ranks) {
        (Some(_), Some(_)) => Err(TrainFailed::RanksTwice.into()),
        (Some(group), None) if group.rank() > 0 => train_rank(options, common, Some(group), &mut Silent),
        (group, None) => train_rank(options, common, group, listener),
        (None, Some(ranks)) => ranks::here(in_process(ranks.get(), timeout(options)), listener, |rank, listener| {
            let group: Group = Some(Arc::new(rank));
            match listener {
                Some(listener) => train_rank(options, common, group, listener),
                None => train_rank(options, common, group, &mut Silent),
            }
        }),
    }
}

fn train_rank(
    options: &Train,
    common: &Common,
    group: Group,
    listener: &mut dyn Listener,
) -> Result<Summary, CliError> {
    match pipeline::is_asked_for(options) {
        true => pipeline::run(options, common, group, listener),
        false => ranker::run(options, common, group, listener),
    }
}

/// The time limit of operations of ranks.
fn timeout(options: &Train) -> Duration {
    Duration::from_secs_f64(options.rank_timeout)
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

    /// Writes the `model.safetensors` of the current model. All ranks participate; the first one writes the file to
    /// `out`.
    fn write_weights(
        &self,
        trainer: &Trainer,
        metadata: &BTreeMap<String, String>,
        out: &mut dyn Write,
    ) -> Result<(), RankTrainError>;

    /// The tensors of the model that changed since the last call. All ranks participate.
    fn changes(&self, trainer: &Trainer) -> Result<Changes, RankTrainError>;

    /// Writes the averages in the same way, if there are any.
    fn write_averages(&self, trainer: &Trainer, out: &mut dyn Write) -> Result<(), RankTrainError>;
}

/// The device of a rank's steps: `{rank}` in --adapter is replaced by its number on its machine.
fn running(common: &Common, group: &Group) -> RankOptions {
    let options = with_common(common, RankOptions::default());
    let rank = ranks::on_machine(group).to_string();
    RankOptions { adapter: options.adapter.map(|adapter| adapter.replace("{rank}", &rank)), ..options }
}
