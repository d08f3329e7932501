//! Progress and summary of a run.

use crate::progress::Progress;
use crate::rank::count;
use crate::requests;
use serde::Serialize;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Interval of progress messages if stderr is not a terminal.
const EVERY: Duration = Duration::from_secs(30);

/// The summary of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Rows of the output.
    pub rows: u64,
    pub users: u64,
    /// Invalid rows of the input.
    pub rejected: u64,
    /// Output rows of earlier runs.
    pub resumed_rows: u64,
    /// From the start of the program to the end.
    pub seconds: f64,
    /// Rows of this run.
    pub rows_per_second: f64,
    /// Users, events and candidates per batch.
    pub batch: usize,
    pub kernel: String,
    pub adapter: String,
}

/// Rows per second and the time left, on stderr.
pub struct Meter {
    bar: Progress,
    begun: Instant,
    /// Rows and input at the start of the run.
    before: u64,
    first: Option<requests::Progress>,
    told: Instant,
    is_terminal: bool,
}

impl Meter {
    pub fn new(before: u64) -> Self {
        let now = Instant::now();
        Self { bar: Progress::new(), begun: now, before, first: None, told: now, is_terminal: stderr().is_terminal() }
    }

    pub fn update(&mut self, read: requests::Progress, rows: u64) {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-3);
        let rate = (rows - self.before) as f64 / seconds;
        let first = *self.first.get_or_insert(read);
        if self.is_terminal {
            self.bar.update(read, format_args!("{rows} rows, {rate:.0} rows per second"));
        } else if self.told.elapsed() > EVERY && read.done > first.done {
            let left = (read.all - read.done.min(read.all)) as f64 * seconds / (read.done - first.done) as f64;
            tracing::info!("{rows} rows, {rate:.0} rows per second, {left:.0} s left");
            self.told = Instant::now();
        }
    }
}

impl Summary {
    pub fn text(&self, out: &str) -> String {
        let Self { rows, users, rejected, seconds, rows_per_second, adapter, .. } = self;
        let rejected = if *rejected > 0 { format!(", {} rejected", count(*rejected, "row")) } else { String::new() };
        format!(
            "{out}: {} of {}{rejected} in {seconds:.2} s on {adapter}, {rows_per_second:.0} rows per second",
            count(*rows, "row"),
            count(*users, "user")
        )
    }
}
