//! `rewire train`.

mod data;
mod error;
mod folder;
mod record;
mod report;

pub use error::TrainFailed;
pub use folder::FILES;

use crate::args::{Common, Train};
use crate::caches;
use crate::demo;
use crate::error::CliError;
use crate::log::say;
use crate::output::Output;
use crate::rank::Tally;
use crate::requests::{Chunk, Reading, Sizes, chunks, open};
use data::Users;
use folder::Folder;
use record::Record;
use report::{Progress, StepLine, Summary, SummaryLine};
use rewire::Mapping;
use rewire::rank::{RankError, RankOptions, Ranker, parse_config, read_config_text, read_weights_mapping};
use rewire::train::{Checkpoint, Event, Position, RankTask, StepReport, TrainConfig, Trainer, fit};
use rewire::weights::Weights;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What is trained, and on what.
struct Inputs {
    /// The text of the model's configuration.
    model: String,
    task: RankTask,
    weights: Option<Weights<'static>>,
    /// The text of the training's configuration.
    training: String,
    config: TrainConfig,
    files: Vec<PathBuf>,
}

/// Trains a model and writes it.
pub fn run(options: &Train, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let inputs = Inputs::new(options, common)?;
    let folder = Folder::new(&options.out, &inputs.model)?;
    let mut trainer = inputs.task.trainer(&inputs.config, inputs.weights.as_ref()).map_err(TrainFailed::from)?;
    let record = Record::new(&inputs, common.matrices, &trainer.report())?;
    let checkpoint = match options.resume {
        true => folder.checkpoint(&record, options.allow_changes)?,
        false => None,
    };
    let from = resume(checkpoint, &inputs, options, &mut trainer)?;
    trainer.report_every(options.save_every);
    let examples = inputs.task.examples(&trainer).map_err(TrainFailed::from)?;
    let count = Arc::new(AtomicU64::new(0));
    let mut users = Users {
        files: inputs.files.clone(),
        examples: examples.clone(),
        batch_size: inputs.config.batch_size.get(),
        shuffle_seed: inputs.config.shuffle_seed,
        count: count.clone(),
    };
    let mut watch = Watch {
        progress: Progress::new(inputs.config.steps.map(|steps| steps.get()), trainer.steps()),
        inputs: &inputs,
        folder,
        record,
        options,
        json: common.json,
        position: from,
        last: None,
        output,
    };
    let (begun, before) = (Instant::now(), trainer.steps());
    let fitted = fit(&mut trainer, &mut users, from, |trainer, event| watch.on(trainer, event))?;
    let time = begun.elapsed();
    watch.save(&trainer, fitted.position)?;
    let tally =
        evaluate(&inputs, &trainer, options.eval.as_ref().map_or(inputs.files.as_slice(), std::slice::from_ref))?;
    let Watch { progress, last, output, .. } = watch;
    drop(progress);
    let made = trainer.steps() - before;
    // Those of batches that a training which was stopped had read are read again, and passed over.
    let passed = from.batch * inputs.config.batch_size.get() as u64;
    let users = count.load(Ordering::Relaxed).saturating_sub(passed);
    let summary = Summary::new(trainer.steps(), time, users, &trainer.report(), &tally);
    match common.json {
        true => output.json(&SummaryLine { summary })?,
        false => summary.print(last.filter(|_| made > 0).as_ref(), &options.out.display().to_string(), output)?,
    }
    Ok(())
}

impl Inputs {
    fn new(options: &Train, common: &Common) -> Result<Self, CliError> {
        let ranking = RankOptions {
            kernel: common.kernel,
            adapter: common.adapter.clone(),
            matrices: common.matrices,
            tunings: caches::tunings(),
            pipelines: caches::pipelines(),
            ..RankOptions::default()
        };
        let (model, weights) = match &options.model {
            None => (demo::CONFIG.to_owned(), None),
            Some(model) => (read_config_text(model)?, weights(model, options.fresh, common.mapping)?),
        };
        let name =
            options.model.as_ref().map_or_else(|| "the model in the program".to_owned(), |m| m.display().to_string());
        let training = options.config.as_deref().map_or_else(|| Ok(demo::TRAINING.to_owned()), text)?;
        let file = options.config.as_ref().map_or_else(String::new, |config| config.display().to_string());
        let config = TrainConfig::from_json(&training).map_err(|source| TrainFailed::Config { file, source })?;
        let config = TrainConfig { memory_limit: options.memory_limit.or(config.memory_limit), ..config };
        let task = RankTask::new(parse_config(&name, &model)?, ranking);
        Ok(Self { model, task, weights, training, config, files: options.data.clone() })
    }
}

/// The text of a configuration.
fn text(path: &Path) -> Result<String, TrainFailed> {
    let read = std::fs::read_to_string(path);
    read.map_err(|source| TrainFailed::Read { file: path.display().to_string(), source })
}

/// What a model begins with: its weights, if it has some and is not to begin anew.
fn weights(model: &Path, fresh: bool, mapping: Mapping) -> Result<Option<Weights<'static>>, RankError> {
    let has_none = model.is_dir() && !model.join("model.safetensors").exists();
    if fresh || has_none { Ok(None) } else { read_weights_mapping(model, mapping).map(Some) }
}

/// Continues the training of a checkpoint, if there is one, and returns where in the data it was.
fn resume(
    checkpoint: Option<Checkpoint>,
    inputs: &Inputs,
    options: &Train,
    trainer: &mut Trainer,
) -> Result<Position, TrainFailed> {
    let Some(checkpoint) = checkpoint else {
        if options.resume {
            say("there is no checkpoint yet: beginning with the first step");
        }
        return Ok(Position::default());
    };
    inputs.task.resume(trainer, &checkpoint)?;
    say(format_args!("resuming after step {}", checkpoint.steps));
    Ok(checkpoint.position)
}

/// What goes on beside the steps: lines, files, and what an epoch came to.
struct Watch<'a> {
    progress: Progress,
    inputs: &'a Inputs,
    folder: Folder,
    record: Record,
    options: &'a Train,
    json: bool,
    /// Where in the data the next step begins.
    position: Position,
    last: Option<StepReport>,
    output: &'a mut Output,
}

impl Watch<'_> {
    fn on(&mut self, trainer: &Trainer, event: Event) -> Result<ControlFlow<()>, CliError> {
        match event {
            Event::Step(report, position) => {
                if self.json {
                    self.output.json(&StepLine::new(&report))?;
                    self.output.flush()?;
                }
                self.progress.update(&report);
                self.position = position;
                if report.step.is_multiple_of(self.options.save_every.get()) {
                    self.save(trainer, self.position)?;
                }
                self.last = Some(report);
            }
            Event::Epoch(epoch) => self.end_epoch(trainer, epoch)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn save(&self, trainer: &Trainer, position: Position) -> Result<(), TrainFailed> {
        self.folder.save(&self.record, &self.inputs.task, trainer, position)
    }

    /// Writes and evaluates what was learned; nothing before the first step.
    fn end_epoch(&mut self, trainer: &Trainer, epoch: u64) -> Result<(), CliError> {
        if trainer.steps() == 0 {
            return Ok(());
        }
        if let Some(epochs) = self.inputs.config.epochs {
            self.progress.set_steps(trainer.steps() / epoch * epochs.get());
        }
        self.save(trainer, self.position)?;
        let Some(file) = &self.options.eval else { return Ok(()) };
        let tally = evaluate(self.inputs, trainer, std::slice::from_ref(file))?;
        let aucs = tally.aucs().into_iter().map(|(task, auc)| {
            let auc = auc.map_or_else(|| "undefined".to_owned(), |auc| format!("{auc:.4}"));
            format!(", AUC {task} {auc}")
        });
        self.progress
            .aside(|| say(format_args!("epoch {epoch}, step {}{}", trainer.steps(), aucs.collect::<String>())));
        Ok(())
    }
}

/// Ranks the users of files with the model as it is.
fn evaluate(inputs: &Inputs, trainer: &Trainer, files: &[PathBuf]) -> Result<Tally, CliError> {
    let ranker: Ranker = inputs.task.ranker(trainer).map_err(TrainFailed::from)?;
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
