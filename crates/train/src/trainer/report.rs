//! Submits steps to the device, and reads their results later.

use super::{Prepared, TrainError, Trainer};
use crate::step::{LATEST, names, reported_rows};
use rewire_graph::HostTensor;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Number of successive f16 overflows after which a training fails.
const MOST_OVERFLOWS: u64 = 64;

/// The results of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// The step, from 1.
    pub step: u64,
    /// The loss, the mean over the batches of the step.
    pub loss: f64,
    /// Outputs of one float, including the loss, as means over the batches of the step.
    pub outputs: BTreeMap<String, f64>,
    /// The learning rate of dense parameters.
    pub dense_rate: f64,
    /// The learning rate of tables.
    pub sparse_rate: f64,
    /// True if f16 values overflowed: parameters did not change, and the loss scale was reduced.
    pub overflowed: bool,
}

/// A submitted step with an unread loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submitted {
    step: u64,
    batches: usize,
    rates: [f64; 2],
}

/// The results of the steps so far.
#[derive(Debug)]
pub(super) struct Progress {
    /// The last loss that was read.
    pub loss: f64,
    /// Number of successive overflows up to this loss.
    overflows: u64,
    /// An error to return after the reports of earlier steps.
    failed: Option<TrainError>,
    /// Interval in steps at which losses are read.
    every: Option<NonZeroU64>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { loss: f64::NAN, overflows: 0, failed: None, every: None }
    }
}

impl Trainer {
    /// Runs one step, and waits for its report.
    ///
    /// # Errors
    /// As [`Trainer::submit`].
    pub fn step(&mut self, step: Prepared) -> Result<StepReport, TrainError> {
        let mut reports = self.submit(step)?;
        reports.extend(self.reports()?);
        reports.pop().ok_or(TrainError::Empty { expected: 1 })
    }

    /// Submits one step without waiting for its results, so that the device runs while the next steps are submitted. Every 16th step
    /// returns the reports of all steps since the last time; other steps return none. A non-finite loss is therefore reported up to 15
    /// steps late. The error names the step of the loss, and the first parameter that is not finite at the time of the report.
    ///
    /// # Errors
    /// [`TrainError::Diverged`] if a loss is not finite, [`TrainError::Overflow`] if steps overflow repeatedly,
    /// [`TrainError::Memory`] if the batches exceed the limit, [`TrainError::Order`], and [`TrainError::Run`]. After an error, parameters
    /// must not be used, unless it is a [`TrainError::Run`] which states that the session's states are unchanged.
    pub fn submit(&mut self, step: Prepared) -> Result<Vec<StepReport>, TrainError> {
        self.grow(&step.grown)?;
        self.record(&step);
        if let Some(mut ranks) = self.ranks.take() {
            let report = self.step_of_ranks(&mut ranks, &step);
            self.ranks = Some(ranks);
            let report = report?;
            self.check(&report)?;
            return Ok(vec![report]);
        }
        let count = step.batches.len();
        let rows = reported_rows(&self.config);
        let mut row: usize = self.submitted.iter().map(|step| step.batches).sum();
        let mut reports = vec![];
        if row + count > rows {
            (reports, row) = (self.reports()?, 0);
        }
        if let Some(error) = self.progress.failed.take() {
            return Err(error);
        }
        let rates = self.rates(step.epoch);
        let mut sums = BTreeMap::new();
        for (batch, mut inputs) in step.batches.into_iter().enumerate() {
            for (kind, rate) in &rates {
                inputs.insert(names::rate(kind), HostTensor::vector(&[*rate as f32]));
            }
            let is_last = self.config.is_last(self.steps, batch);
            inputs.insert(names::LAST, HostTensor::vector(&[if is_last { 1.0f32 } else { 0.0 }]));
            inputs.insert(names::ROW, HostTensor::vector(&[((row + batch) % rows) as u32]));
            inputs.insert("seed", HostTensor::i64([], &[self.seed(batch, count)])?);
            self.carry(&mut inputs, std::mem::take(&mut sums));
            self.fit(&inputs)?;
            let results = self.run(&inputs)?;
            sums = self.sums(&results);
        }
        self.steps += 1;
        let rate = |rate: Option<&(String, f64)>| rate.map_or(0.0, |(_, rate)| *rate);
        let rates = [rate(rates.first()), rate(rates.last())];
        self.submitted.push(Submitted { step: self.steps, batches: count.min(rows), rates });
        let is_asked = self.progress.every.is_some_and(|every| self.steps.is_multiple_of(every.get()));
        if self.submitted.len() == LATEST || is_asked {
            reports.extend(self.reports()?);
        }
        Ok(reports)
    }

    /// The learning rates of the next step, by kind of parameter: dense parameters first, tables last.
    pub(super) fn rates(&self, epoch: u64) -> Vec<(String, f64)> {
        let dense = self.config.dense_optimizers();
        let dense = dense.into_iter().map(|(kind, scheduled)| (kind, scheduled.rate(self.steps, epoch)));
        let sparse = self.config.sparse_optimizer.rate(self.steps, epoch);
        dense.chain([(names::SPARSE.to_owned(), sparse)]).collect()
    }

    /// The report of a step of ranks.
    pub(super) fn report_with(
        &self,
        outputs: BTreeMap<String, f64>,
        rates: &[(String, f64)],
        overflowed: bool,
    ) -> StepReport {
        let rate = |rate: Option<&(String, f64)>| rate.map_or(0.0, |(_, rate)| *rate);
        let loss = outputs.get(&self.loss).copied().unwrap_or(f64::NAN);
        let [dense_rate, sparse_rate] = [rate(rates.first()), rate(rates.last())];
        StepReport { step: self.steps, loss, outputs, dense_rate, sparse_rate, overflowed }
    }

    /// Makes [`Trainer::submit`] return reports after every multiple of `every` steps, too.
    pub fn report_every(&mut self, every: NonZeroU64) {
        self.progress.every = Some(every);
    }

    /// Waits for the submitted steps and returns the unread reports, in order.
    ///
    /// # Errors
    /// As [`Trainer::submit`]. If a step fails, the first call returns the reports of the steps before it, and the next one the error.
    pub fn reports(&mut self) -> Result<Vec<StepReport>, TrainError> {
        let mut reports = vec![];
        if self.progress.failed.is_none() && !self.submitted.is_empty() {
            let values = self.session.state(names::REPORTED)?.to_f32();
            let mut rows = values.chunks(self.reported.len().max(1));
            for step in std::mem::take(&mut self.submitted) {
                let report = self.report_of(step, &rows.by_ref().take(step.batches).collect::<Vec<_>>());
                match self.check(&report) {
                    Ok(()) => reports.push(report),
                    Err(error) => {
                        self.progress.failed = Some(error);
                        break;
                    }
                }
            }
        }
        match self.progress.failed.take_if(|_| reports.is_empty()) {
            Some(error) => Err(error),
            None => Ok(reports),
        }
    }

    /// The report of a step, from the reported rows of its batches.
    fn report_of(
        &self,
        Submitted { step, rates: [dense_rate, sparse_rate], .. }: Submitted,
        rows: &[&[f32]],
    ) -> StepReport {
        let column = |at: usize| rows.iter().filter_map(move |row| row.get(at).copied().map(f64::from));
        let mean = |(at, name): (usize, &String)| (name.clone(), column(at).map(|x| x / rows.len() as f64).sum());
        let mut outputs: BTreeMap<String, f64> = self.reported.iter().enumerate().map(mean).collect();
        let finite = self.reported.iter().position(|name| name == names::FINITE);
        let overflowed = finite.is_some_and(|at| column(at).next_back() == Some(0.0));
        outputs.remove(names::FINITE);
        let loss = outputs.get(&self.loss).copied().filter(|_| !rows.is_empty()).unwrap_or(f64::NAN);
        StepReport { step, loss, outputs, dense_rate, sparse_rate, overflowed }
    }

    fn check(&mut self, report: &StepReport) -> Result<(), TrainError> {
        self.progress.loss = report.loss;
        self.progress.overflows = if report.overflowed { self.progress.overflows + 1 } else { 0 };
        match report.overflowed {
            true if self.progress.overflows >= MOST_OVERFLOWS => {
                Err(TrainError::Overflow { step: report.step, steps: self.progress.overflows })
            }
            false if !report.loss.is_finite() => Err(TrainError::Diverged {
                step: report.step,
                loss: report.loss,
                parameter: self.first_bad_parameter(),
            }),
            _ => Ok(()),
        }
    }
}
