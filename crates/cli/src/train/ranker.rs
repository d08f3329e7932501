//! Training of rankers with their own `config.json`.

use super::data::Users;
use super::listener::Listener;
use super::ranks::Group;
use super::report::Summary;
use super::watch::train;
use super::{Learner, Metrics, Source, TrainFailed, running};
use crate::args::{Common, Train};
use crate::demo;
use crate::error::CliError;
use crate::rank::Tally;
use crate::requests::{Chunk, Reading, Sizes, chunks, open};
use rewire::Mapping;
use rewire::delta::Changes;
use rewire::rank::{RankError, Ranker, parse_config, read_config_text, read_weights};
use rewire::train::{RankTask, RankTrainError, TrainConfig, Trainer};
use rewire::weights::Weights;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The model and its training.
struct Inputs {
    task: RankTask,
    /// The metrics of evaluations.
    metrics: Vec<String>,
    weights: Option<Weights<'static>>,
    config: TrainConfig,
    eval: Option<PathBuf>,
}

/// Trains a model and writes it.
pub fn run(options: &Train, common: &Common, group: Group, listener: &mut dyn Listener) -> Result<Summary, CliError> {
    let others = [
        ("--negatives", options.negatives.is_some()),
        ("--eval-negatives", options.eval_negatives.is_some()),
        ("--export-dcp", options.export_dcp.is_some()),
        ("--seed", options.seed.is_some()),
    ];
    if let Some((option, _)) = others.into_iter().find(|(_, is_given)| *is_given) {
        return Err(TrainFailed::OtherKind { option, kind: "pipelines" }.into());
    }
    let (inputs, source) = Inputs::new(options, common, group)?;
    let mut trainer = inputs.task.trainer(&inputs.config, inputs.weights.as_ref()).map_err(TrainFailed::from)?;
    let examples = inputs.task.examples(&trainer).map_err(TrainFailed::from)?;
    let count = Arc::new(AtomicU64::new(0));
    let mut users = Users {
        files: source.files.clone(),
        examples,
        batch_size: inputs.config.batch_size.get(),
        shuffle_seed: inputs.config.shuffle_seed,
        count: count.clone(),
    };
    let ended = train(&inputs, &source, (options, common), &mut trainer, &mut users, listener)?;
    let auc = match options.eval.is_some() {
        true => ended.metrics.clone(),
        false if trainer.is_divided() => {
            listener.message("the model is not evaluated on the training data, because that needs whole tables");
            vec![]
        }
        false => metrics_of(&inputs.tally(&trainer, &source.files)?),
    };
    // Batches that an interrupted training had used are read again and skipped.
    let passed = ended.from.batch * inputs.config.batch_size.get() as u64;
    let users = count.load(Ordering::Relaxed).saturating_sub(passed);
    let mut summary = Summary::new(trainer.steps(), ended, users, &trainer.report());
    let task = |(name, auc): (String, Option<f64>)| (name.strip_prefix(METRIC).unwrap_or(&name).to_owned(), auc);
    summary.auc = auc.into_iter().map(task).collect();
    Ok(summary)
}

impl Inputs {
    fn new(options: &Train, common: &Common, group: Group) -> Result<(Self, Source), CliError> {
        let (model, weights) = match &*options.model {
            None => (demo::CONFIG.to_owned(), None),
            Some(model) => (read_config_text(model, common.mapping)?, weights(model, options.fresh, common.mapping)?),
        };
        let name = options.model.as_ref().map_or_else(|| "the built-in model".to_owned(), |m| m.display().to_string());
        let training = options.config.as_deref().map_or_else(|| Ok(demo::TRAINING.to_owned()), text)?;
        let file = options.config.as_ref().map_or_else(String::new, |config| config.display().to_string());
        let config = TrainConfig::from_json(&training).map_err(|source| TrainFailed::Config { file, source })?;
        let config = TrainConfig {
            memory_limit: options.memory_limit.or(config.memory_limit),
            tables_folder: options.tables_folder.clone().or(config.tables_folder),
            ..config
        };
        let parsed = parse_config(&name, &model)?;
        let metrics = parsed.task_names().into_iter().map(metric).collect();
        let task = RankTask::new(parsed, running(common, &group)).with_group(group);
        let source = Source { config: model.clone(), model, training, files: options.data.clone() };
        Ok((Self { task, metrics, weights, config, eval: options.eval.clone() }, source))
    }

    /// Ranks the users of files with the current model.
    fn tally(&self, trainer: &Trainer, files: &[PathBuf]) -> Result<Tally, CliError> {
        let ranker: Ranker = self.task.ranker(trainer).map_err(TrainFailed::from)?;
        let mut tally = Tally::new(ranker.tasks(), Instant::now());
        let files: Vec<Option<&Path>> =
            if files.is_empty() { vec![None] } else { files.iter().map(|f| Some(f.as_path())).collect() };
        for file in files {
            let reading = Reading { empty: ranker.batch(), sizes: Sizes::default(), rejects: false, ahead: 2 };
            for chunk in chunks(open(file, ranker.schema())?, reading)? {
                let Chunk { batch, end, .. } = chunk;
                for (request, ranked) in ranker.rank_batch(&batch)?.iter().enumerate() {
                    tally.add(ranked, batch.labels(request));
                }
                end?;
            }
        }
        Ok(tally)
    }
}

impl Learner for Inputs {
    fn loss_prefix(&self) -> &'static str {
        "losses."
    }

    fn metrics(&self) -> Vec<String> {
        self.metrics.clone()
    }

    fn evaluate(&self, trainer: &Trainer) -> Result<Metrics, CliError> {
        Ok(metrics_of(&self.tally(trainer, self.eval.as_slice())?))
    }

    fn write_weights(
        &self,
        trainer: &Trainer,
        metadata: &BTreeMap<String, String>,
        out: &mut dyn Write,
    ) -> Result<(), RankTrainError> {
        self.task.write_weights(trainer, metadata, out)
    }

    fn changes(&self, trainer: &Trainer) -> Result<Changes, RankTrainError> {
        self.task.changes(trainer)
    }

    fn write_averages(&self, trainer: &Trainer, out: &mut dyn Write) -> Result<(), RankTrainError> {
        self.task.write_averages(trainer, out)
    }
}

/// The text of a configuration.
fn text(path: &Path) -> Result<String, TrainFailed> {
    let read = std::fs::read_to_string(path);
    read.map_err(|source| TrainFailed::Read { file: path.display().to_string(), source })
}

/// The initial weights of a training: those of the model; `None` with `--fresh`, or without a file of weights.
fn weights(model: &Path, fresh: bool, mapping: Mapping) -> Result<Option<Weights<'static>>, RankError> {
    let has_none = model.is_dir() && !model.join("model.safetensors").exists();
    if fresh || has_none { Ok(None) } else { read_weights(model, mapping).map(Some) }
}

/// The prefix of the name of an AUC.
const METRIC: &str = "auc_";

/// The name of the AUC of a task.
fn metric(task: &str) -> String {
    format!("{METRIC}{task}")
}

fn metrics_of(tally: &Tally) -> Metrics {
    tally.aucs().into_iter().map(|(task, auc)| (metric(&task), auc)).collect()
}
