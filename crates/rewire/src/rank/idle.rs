//! Refining tunings between calls, off their critical path.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Decides when a model may measure tunings: with a budget, while no call runs and nothing else measures.
#[derive(Debug, Default)]
pub(super) struct Idle {
    budget: Option<Duration>,
    calls: AtomicUsize,
    measures: AtomicBool,
    has_failed: AtomicBool,
}

impl Idle {
    pub fn new(budget: Option<Duration>) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Counts a call until the guard is dropped.
    pub fn call(&self) -> Call<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Call(self)
    }

    /// Starts a measurement, if one is due: [`Idle::end`] must follow.
    pub fn begin(&self) -> Option<Duration> {
        let budget = self.budget?;
        let is_due = self.calls.load(Ordering::Relaxed) == 0 && !self.has_failed.load(Ordering::Relaxed);
        (is_due && !self.measures.swap(true, Ordering::Relaxed)).then_some(budget)
    }

    /// Ends a measurement. After a failure nothing is measured again.
    pub fn end(&self, has_failed: bool) {
        self.has_failed.store(has_failed, Ordering::Relaxed);
        self.measures.store(false, Ordering::Relaxed);
    }
}

/// A call in progress.
pub(super) struct Call<'a>(&'a Idle);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
