//! What a training tells.

use super::observer::{Best, Step};
use crate::output::Output;
use crate::rank::Tally;
use crate::table::table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rewire::runtime::Report;
use rewire::train::StepReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// A line of a step.
#[derive(Serialize)]
pub struct StepLine<'a> {
    step: u64,
    loss: f64,
    losses: BTreeMap<&'a str, f64>,
    lr: Rates,
}

#[derive(Serialize)]
struct Rates {
    dense: f64,
    sparse: f64,
}

impl<'a> StepLine<'a> {
    pub fn new(report: &'a StepReport) -> Self {
        let losses = report.outputs.iter().filter_map(|(name, loss)| Some((name.strip_prefix("losses.")?, *loss)));
        let lr = Rates { dense: report.dense_rate, sparse: report.sparse_rate };
        Self { step: report.step, loss: report.loss, losses: losses.collect(), lr }
    }
}

/// The last line.
#[derive(Serialize)]
pub struct SummaryLine {
    pub summary: Summary,
}

/// What a training came to.
#[derive(Serialize)]
pub struct Summary {
    pub steps: u64,
    /// From the first step to the last.
    pub seconds: f64,
    pub users_per_second: f64,
    pub kernel: String,
    pub adapter: String,
    pub auc: BTreeMap<String, Option<f64>>,
    /// The model in OUT/best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
}

impl Summary {
    pub fn new(steps: u64, time: Duration, users: u64, report: &Report, tally: &Tally, best: Option<Best>) -> Self {
        let ranked = tally.summary(report);
        let seconds = time.as_secs_f64();
        Self {
            steps,
            seconds,
            users_per_second: if seconds > 0.0 { users as f64 / seconds } else { 0.0 },
            kernel: ranked.kernel,
            adapter: ranked.adapter,
            auc: ranked.auc.into_iter().collect(),
            best,
        }
    }

    /// Prints it for people.
    pub fn print(&self, last: Option<&StepReport>, out: &str, output: &mut Output) -> io::Result<()> {
        let rows = [
            ("steps", self.steps.to_string()),
            ("loss of the last", last.map_or("-".to_owned(), |report| format!("{:.4}", report.loss))),
            ("seconds", format!("{:.1}", self.seconds)),
            ("users a second", format!("{:.0}", self.users_per_second)),
            ("on", self.adapter.clone()),
        ];
        let aucs = self.auc.iter().map(|(task, auc)| {
            let auc = auc.map_or_else(|| "undefined: all labels are equal".to_owned(), |auc| format!("{auc:.4}"));
            vec![format!("AUC {task}"), auc]
        });
        let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).chain(aucs);
        let best = self.best.as_ref().map(|best| {
            vec![format!("best {}", best.metric), format!("{:.4} after step {}, in {out}/best", best.value, best.step)]
        });
        output.line(table(&["training", ""], rows.chain(best), &[0]))?;
        output.line(format_args!("the model is in {out}: rewire rank --model {out}"))
    }
}

/// A bar on stderr with loss, rate and the time left; nothing where stderr is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// `steps` are all, where that is known.
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

    pub fn update(&self, step: &Step) {
        self.0.set_position(step.step);
        let rate = step.rates.first().map(|(_, rate)| format!(" rate {rate:.2e}")).unwrap_or_default();
        self.0.set_message(format!("loss {:.4}{rate}", step.loss));
    }

    /// All steps, once they are known.
    pub fn set_steps(&self, steps: u64) {
        self.0.set_length(steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} step {pos}/{len} {msg} {per_sec} {eta} left") {
            self.0.set_style(style);
        }
    }

    /// Prints with the bar out of the way.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
