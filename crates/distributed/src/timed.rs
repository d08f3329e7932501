use crate::{CollectiveError, Collectives};
use bytes::Bytes;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that a rank spent in collective operations, and its sent bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Time spent waiting for the last rank to arrive.
    pub waiting: Duration,
    /// Time spent exchanging messages.
    pub exchange: Duration,
    /// Bytes sent to other ranks.
    pub bytes: u64,
}

/// A rank that measures its operations. A barrier before each operation separates waiting from exchange.
#[derive(Debug)]
pub struct Timed<C> {
    group: C,
    spent: Mutex<Spent>,
}

impl<C: Collectives> Timed<C> {
    /// Measures the operations of a rank.
    pub fn new(group: C) -> Self {
        Self { group, spent: Mutex::default() }
    }

    /// The totals since the start or the last call.
    pub fn take(&self) -> Spent {
        std::mem::take(&mut self.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<C: Collectives> Collectives for Timed<C> {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn ranks(&self) -> usize {
        self.group.ranks()
    }

    fn all_to_all(&self, parts: Vec<Bytes>) -> Result<Vec<Bytes>, CollectiveError> {
        let others = parts.iter().enumerate().filter(|(rank, _)| *rank != self.rank());
        let bytes: usize = others.map(|(_, part)| part.len()).sum();
        let begun = Instant::now();
        self.group.barrier()?;
        let arrived = Instant::now();
        let received = self.group.all_to_all(parts)?;
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.waiting += arrived - begun;
        spent.exchange += arrived.elapsed();
        spent.bytes += bytes as u64;
        Ok(received)
    }
}
