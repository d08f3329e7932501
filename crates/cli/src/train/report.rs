//! The output of a training.

use super::observer::Best;
use super::watch::Ended;
use crate::output::Output;
use crate::table::table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rewire::runtime::Report;
use rewire::train::StepReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// A step of a training.
#[derive(Debug, Serialize)]
pub struct StepLine<'a> {
    /// The number of the step, from 1.
    pub step: u64,
    /// The sum of all losses.
    pub loss: f64,
    /// All losses by name.
    pub losses: BTreeMap<&'a str, f64>,
    /// The learning rates.
    pub lr: Rates,
}

/// Learning rates.
#[derive(Debug, Serialize)]
pub struct Rates {
    /// Of dense parameters.
    pub dense: f64,
    /// Of tables.
    pub sparse: f64,
}

impl<'a> StepLine<'a> {
    /// Losses are the outputs with this name prefix.
    pub(super) fn new(report: &'a StepReport, prefix: &str) -> Self {
        let losses =
            report.outputs.iter().filter_map(|(name, loss)| Some((name.strip_prefix(prefix)?, *loss))).collect();
        let lr = Rates { dense: report.dense_rate, sparse: report.sparse_rate };
        Self { step: report.step, loss: report.loss, losses, lr }
    }
}

/// The last line.
#[derive(Serialize)]
pub struct SummaryLine {
    pub summary: Summary,
}

/// The summary of a training.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// All steps, also of earlier runs that this one resumed.
    pub steps: u64,
    /// From the first step of this run to the last.
    pub seconds: f64,
    /// Users or rows in this time.
    pub users_per_second: f64,
    /// The backend.
    pub kernel: String,
    /// The adapter, or `cpu`.
    pub adapter: String,
    /// The loss of the last step of this run.
    #[serde(skip)]
    pub loss: Option<f64>,
    /// Metrics of rankers, by task.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub auc: BTreeMap<String, Option<f64>>,
    /// Metrics of pipelines, on --eval.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Option<f64>>,
    /// The model in OUT/best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
}

impl Summary {
    /// For `steps` in total. The last ones were made by this run, for `users` users.
    pub(super) fn new(steps: u64, ended: Ended, users: u64, report: &Report) -> Self {
        let Ended { time, last, best, .. } = ended;
        let seconds = time.as_secs_f64();
        Self {
            steps,
            seconds,
            users_per_second: if seconds > 0.0 { users as f64 / seconds } else { 0.0 },
            kernel: report.kernel.to_string(),
            adapter: report.adapter.clone().unwrap_or_else(|| "cpu".to_owned()),
            loss: last,
            auc: BTreeMap::new(),
            metrics: BTreeMap::new(),
            best,
        }
    }

    /// Prints a readable summary, with the command that uses the model.
    pub(super) fn print(&self, out: &str, command: &str, output: &mut Output) -> io::Result<()> {
        let rows = [
            ("steps", self.steps.to_string()),
            ("loss of the last", self.loss.map_or("-".to_owned(), |loss| format!("{loss:.4}"))),
            ("seconds", format!("{:.1}", self.seconds)),
            ("users per second", format!("{:.0}", self.users_per_second)),
            ("on", self.adapter.clone()),
        ];
        let named = |name: String, value: &Option<f64>| {
            vec![
                name,
                value.map_or_else(|| "undefined: all labels are equal".to_owned(), |value| format!("{value:.4}")),
            ]
        };
        let aucs = self.auc.iter().map(|(task, auc)| named(format!("AUC {task}"), auc));
        let aucs = aucs.chain(self.metrics.iter().map(|(name, value)| named(name.clone(), value)));
        let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).chain(aucs);
        let best = self.best.as_ref().map(|best| {
            vec![format!("best {}", best.metric), format!("{:.4} after step {}, in {out}/best", best.value, best.step)]
        });
        output.line(table(&["training", ""], rows.chain(best), &[0]))?;
        output.line(format_args!("the model is in {out}: rewire {command} --model {out}"))
    }
}

/// A progress bar on stderr with loss, rate and the time left; nothing if stderr is not a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// `steps` is the total, if known.
    pub fn new(steps: Option<u64>, done: u64) -> Self {
        let bar = match steps {
            Some(steps) => ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr()),
            None => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
        };
        let template = match steps {
            Some(_) => "{bar:30} step {pos}/{len} {msg} {per_sec} {eta} left",
            None => "{spinner} step {pos} {msg} {per_sec} {elapsed}",
        };
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_position(done);
        Self(bar)
    }

    pub fn update(&self, step: &StepLine) {
        self.0.set_position(step.step);
        self.0.set_message(format!("loss {:.4} rate {:.2e}", step.loss, step.lr.dense));
    }

    /// Sets the total number of steps, once it is known.
    pub fn set_steps(&self, steps: u64) {
        self.0.set_length(steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} step {pos}/{len} {msg} {per_sec} {eta} left") {
            self.0.set_style(style);
        }
    }

    /// Prints while the bar is hidden.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
