//! The training loop for any kind of model: its lines, files and evaluations.

use super::deltas::Deltas;
use super::folder::Folder;
use super::listener::Listener;
use super::observer::{Best, Evaluation, Observer};
use super::report::StepLine;
use super::{Learner, Metrics, Record, Source, TrainFailed};
use crate::args::{Common, Train};
use crate::bench;
use crate::error::CliError;
use crate::profile::write_trace;
use rewire::runtime::Inputs;
use rewire::train::{Data, DataError, Event, Position, Share, StepReport, Trainer, fit};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A training.
pub struct Watch<'a> {
    learner: &'a dyn Learner,
    observer: Observer,
    folder: Folder,
    record: Record,
    deltas: Option<Deltas>,
    options: &'a Train,
    /// Position in the data of the next step.
    position: Position,
    last: Option<StepReport>,
    listener: &'a mut dyn Listener,
}

/// How a training ended.
pub struct Ended {
    /// Metrics and counts of the steps of this run.
    pub time: Duration,
    /// The loss of the last step of this run.
    pub last: Option<f64>,
    pub best: Option<Best>,
    /// Position in the data at the start of this run.
    pub from: Position,
    /// The metrics of --eval after the last step.
    pub metrics: Metrics,
}

/// Trains for the configured steps or epochs, and writes the folder.
pub fn train(
    learner: &dyn Learner,
    source: &Source,
    (options, common): (&Train, &Common),
    trainer: &mut Trainer,
    data: &mut dyn Data,
    listener: &mut dyn Listener,
) -> Result<Ended, CliError> {
    options.profile.iter().try_for_each(|path| bench::check_place(path))?;
    // With several ranks, the first one writes.
    let writes = trainer.group().is_none_or(|group| group.rank() == 0);
    let folder = match writes {
        true => Folder::new(&options.out, &source.config)?,
        false => Folder::of_first_rank(&options.out, &source.config),
    };
    let record = Record::new(source, common.matrices, &trainer.report())?;
    let checkpoint = match options.resume {
        true => folder.checkpoint(&record, options.allow_changes)?,
        false => None,
    };
    let from = match &checkpoint {
        Some(checkpoint) => {
            checkpoint.resume(trainer).map_err(TrainFailed::from)?;
            listener.message(&format!("resuming after step {}", checkpoint.steps));
            checkpoint.position
        }
        None => {
            if options.resume {
                listener.message("there is no checkpoint yet: starting with the first step");
            }
            Position::default()
        }
    };
    let evaluated = options.watching.eval_every.unwrap_or(options.save_every);
    let every = common_divisor(options.save_every, evaluated);
    trainer.report_every(options.delta_every.map_or(every, |deltas| common_divisor(every, deltas)));
    let deltas = options
        .delta_every
        .map(|every| Deltas::new((&options.out, every, writes), checkpoint.as_ref(), learner, trainer));
    let deltas = deltas.transpose()?;
    drop(checkpoint);
    listener.begin(trainer.config().steps.map(|steps| steps.get()), trainer.steps());
    let observer = match writes {
        true => Observer::new(&options.watching, &options.out, trainer.steps())?,
        false => Observer::of_other_rank(&options.watching, &options.out, trainer.steps())?,
    };
    observer.check_metric(learner.metrics().iter().map(String::as_str))?;
    let cancelled = listener.cancelled();
    let mut data = Cancellable { data, cancelled };
    let mut watch = Watch { learner, observer, folder, record, deltas, options, position: from, last: None, listener };
    if watch.deltas.is_some() {
        // The model that the next delta follows.
        watch.save(trainer, from)?;
    }
    if writes && options.profile.is_some() {
        trainer.record_profile();
    }
    let begun = Instant::now();
    let position = match watch.observer.is_over() {
        true => from,
        false => fit(trainer, &mut data, from, |trainer, event| watch.on(trainer, event))?.position,
    };
    let time = begun.elapsed();
    if let (Some(path), Some((profile, counts))) = (&options.profile, trainer.profile()) {
        write_trace(path, "a training step", (profile.clone(), counts.to_vec()), common)?;
    }
    watch.save(trainer, position)?;
    let metrics = match options.eval.is_some() {
        true => learner.evaluate(trainer)?,
        false => vec![],
    };
    if options.eval.is_some() {
        watch.note(trainer, &metrics)?;
    }
    let last = watch.last.as_ref().map(|report| report.loss);
    Ok(Ended { time, last, best: watch.observer.best(), from, metrics })
}

impl Watch<'_> {
    fn on(&mut self, trainer: &Trainer, event: Event) -> Result<ControlFlow<()>, CliError> {
        match event {
            Event::Step(report, position) => {
                let line = StepLine::new(&report, self.learner.loss_prefix());
                self.listener.step(&line)?;
                self.observer.step(&line)?;
                self.position = position;
                let is_every = |steps: Option<NonZeroU64>| steps.is_some_and(|s| report.step.is_multiple_of(s.get()));
                let (saves, evaluates) =
                    (is_every(Some(self.options.save_every)), is_every(self.options.watching.eval_every));
                let step = report.step;
                self.last = Some(report);
                if let Some(deltas) = self.deltas.as_mut().filter(|deltas| deltas.follows(step)) {
                    deltas.write(self.learner, trainer)?;
                }
                if saves {
                    self.save(trainer, self.position)?;
                }
                if evaluates {
                    self.evaluate(trainer, None)?;
                }
            }
            Event::Epoch(epoch) => self.end_epoch(trainer, epoch)?,
        }
        Ok(if self.observer.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn save(&mut self, trainer: &Trainer, position: Position) -> Result<(), TrainFailed> {
        if let Some(deltas) = &mut self.deltas {
            deltas.write(self.learner, trainer)?;
        }
        self.folder.save(&self.record, self.learner, (trainer, position), self.deltas.as_ref())
    }

    /// Writes and evaluates the model; does nothing before the first step.
    fn end_epoch(&mut self, trainer: &Trainer, epoch: u64) -> Result<(), CliError> {
        if trainer.steps() == 0 {
            return Ok(());
        }
        if let Some(epochs) = trainer.config().epochs {
            self.listener.begin(Some(trainer.steps() / epoch * epochs.get()), trainer.steps());
        }
        self.save(trainer, self.position)?;
        self.evaluate(trainer, Some(epoch))
    }

    /// Evaluates on --eval, if it is given and was not evaluated after this step.
    fn evaluate(&mut self, trainer: &Trainer, epoch: Option<u64>) -> Result<(), CliError> {
        if self.options.eval.is_none() || self.observer.is_evaluated(trainer.steps()) {
            return Ok(());
        }
        let metrics = self.learner.evaluate(trainer)?;
        let texts = metrics.iter().map(|(name, value)| {
            let value = value.map_or_else(|| "undefined".to_owned(), |value| format!("{value:.4}"));
            format!(", {name} {value}")
        });
        let (epoch, texts) = (epoch.map(|epoch| format!("epoch {epoch}, ")), texts.collect::<String>());
        self.listener.message(&format!("{}step {}{texts}", epoch.unwrap_or_default(), trainer.steps()));
        self.note(trainer, &metrics)
    }

    /// Records an evaluation on --eval, and keeps the model if it is the best; does nothing if the step was evaluated before.
    fn note(&mut self, trainer: &Trainer, metrics: &Metrics) -> Result<(), CliError> {
        let step = trainer.steps();
        if step == 0 || self.observer.is_evaluated(step) {
            return Ok(());
        }
        let metrics = metrics.iter().cloned().collect();
        if self.observer.evaluated(Evaluation { step, metrics })?.is_best {
            self.folder.save_best(self.learner, trainer)?;
        }
        Ok(())
    }
}

/// Batches that end with an error when the training is cancelled.
struct Cancellable<'a> {
    data: &'a mut dyn Data,
    cancelled: Option<Arc<AtomicBool>>,
}

impl Data for Cancellable<'_> {
    fn epoch(&mut self, epoch: u64) -> Box<dyn Iterator<Item = Result<Inputs, DataError>> + '_> {
        self.data.epoch(epoch)
    }

    fn share(&mut self, epoch: u64, share: Share) -> Box<dyn Iterator<Item = Result<Option<Inputs>, DataError>> + '_> {
        let batches = self.data.share(epoch, share);
        let Some(cancelled) = self.cancelled.clone() else { return batches };
        Box::new(batches.map(move |batch| match cancelled.load(Ordering::Relaxed) {
            true => Err(TrainFailed::Cancelled.into()),
            false => batch,
        }))
    }
}

/// The greatest common divisor.
fn common_divisor(a: NonZeroU64, b: NonZeroU64) -> NonZeroU64 {
    NonZeroU64::new(a.get() % b).map_or(b, |rest| common_divisor(b, rest))
}
