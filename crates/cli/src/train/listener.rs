//! Receivers of the events of a training.

use super::report::{Progress, StepLine};
use crate::output::Output;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Receives the events of a training; with several ranks, those of the first one.
pub trait Listener: Send {
    /// The training has completed `done` of `steps` steps. Called at the start, and when the number of steps becomes
    /// known after an epoch.
    fn begin(&mut self, _steps: Option<u64>, _done: u64) {}

    /// A step is complete.
    ///
    /// # Errors
    /// An error ends the training.
    fn step(&mut self, _step: &StepLine<'_>) -> io::Result<()> {
        Ok(())
    }

    /// A message for the user.
    fn message(&mut self, _text: &str) {}

    /// Set to end the training before its next batch.
    fn cancelled(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}

/// Ignores all events, for all ranks of a training but the first.
pub struct Silent;

impl Listener for Silent {}

/// Shows the progress on stderr, and prints steps as JSON lines if requested.
pub struct Terminal<'a> {
    output: &'a mut Output,
    json: bool,
    progress: Option<Progress>,
}

impl<'a> Terminal<'a> {
    pub fn new(output: &'a mut Output, json: bool) -> Self {
        Self { output, json, progress: None }
    }
}

impl Listener for Terminal<'_> {
    fn begin(&mut self, steps: Option<u64>, done: u64) {
        match (&self.progress, steps) {
            (Some(progress), Some(steps)) => progress.set_steps(steps),
            (Some(_), None) => {}
            (None, steps) => self.progress = Some(Progress::new(steps, done)),
        }
    }

    fn step(&mut self, step: &StepLine<'_>) -> io::Result<()> {
        if self.json {
            self.output.json(step)?;
            self.output.flush()?;
        }
        self.progress.iter().for_each(|progress| progress.update(step));
        Ok(())
    }

    fn message(&mut self, text: &str) {
        match &self.progress {
            Some(progress) => progress.aside(|| tracing::info!("{text}")),
            None => tracing::info!("{text}"),
        }
    }
}
