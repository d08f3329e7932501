//! Fault injection for tests of a device.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A countdown of operations on a device; it ends once.
#[derive(Debug)]
pub(crate) struct Countdown(AtomicUsize);

impl Default for Countdown {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Countdown {
    /// Ends with the operation after `count` others.
    pub fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// True if it has not ended.
    pub fn runs(&self) -> bool {
        self.0.load(Ordering::Relaxed) != usize::MAX
    }

    /// Counts one operation; true for the one that ends the countdown.
    pub(super) fn ends(&self) -> bool {
        self.runs() && self.0.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

/// Pending faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Stages of work on the device; it is destroyed at the last one.
    pub stages: Countdown,
    /// Buffer allocations; the last one is refused.
    pub buffers: Countdown,
}
