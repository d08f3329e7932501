//! What tests let go wrong on a device.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A countdown of something that is done on a device; it is over once.
#[derive(Debug)]
pub(crate) struct Countdown(AtomicUsize);

impl Default for Countdown {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Countdown {
    /// Ends after `count` more, with the one that follows.
    pub fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// True if it has not ended.
    pub fn runs(&self) -> bool {
        self.0.load(Ordering::Relaxed) != usize::MAX
    }

    /// Counts one; true for the one with which it ends.
    pub(super) fn ends(&self) -> bool {
        self.runs() && self.0.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

/// Faults that are still to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Stages of work on the device, at one of which it is destroyed.
    pub stages: Countdown,
    /// Buffers, one of which is refused.
    pub buffers: Countdown,
}
