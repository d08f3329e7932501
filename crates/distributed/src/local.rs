//! Ranks as threads of one process, for tests and single machines.

use crate::{CollectiveError, Collectives};
use bytes::Bytes;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A rank within the process, which shares the memory of messages with the others. Dropping it makes operations of the other ranks fail.
#[derive(Debug)]
pub struct Local {
    rank: usize,
    timeout: Duration,
    /// Channels to every rank, including this one.
    to: Vec<Sender<Bytes>>,
    from: Mutex<Vec<Receiver<Bytes>>>,
    /// The first rank that ended early.
    lost: Arc<OnceLock<usize>>,
}

/// Creates the ranks of a group. Their operations fail after `timeout`.
pub fn in_process(ranks: usize, timeout: Duration) -> Vec<Local> {
    let lost = Arc::new(OnceLock::new());
    let mut receivers: Vec<Vec<Receiver<Bytes>>> = (0..ranks).map(|_| vec![]).collect();
    let mut senders = vec![];
    for _ in 0..ranks {
        let channels = receivers.iter_mut().map(|own| {
            let (sender, receiver) = channel();
            own.push(receiver);
            sender
        });
        senders.push(channels.collect());
    }
    let rank = |(rank, (to, from))| Local { rank, timeout, to, from: Mutex::new(from), lost: lost.clone() };
    senders.into_iter().zip(receivers).enumerate().map(rank).collect()
}

impl Local {
    /// The error for a rank that ended; it names the first rank that did.
    fn lost(&self, rank: usize) -> CollectiveError {
        CollectiveError::Lost { rank: *self.lost.get_or_init(|| rank) }
    }
}

impl Collectives for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.to.len()
    }

    fn all_to_all(&self, parts: Vec<Bytes>) -> Result<Vec<Bytes>, CollectiveError> {
        let (actual, ranks) = (parts.len(), self.ranks());
        if actual != ranks {
            return Err(CollectiveError::Usage { expected: "one part for each rank", actual, ranks });
        }
        let from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        for (rank, (to, part)) in self.to.iter().zip(parts).enumerate() {
            to.send(part).map_err(|_| self.lost(rank))?;
        }
        let deadline = Instant::now() + self.timeout;
        let receive = |(rank, from): (usize, &Receiver<Bytes>)| {
            let rest = deadline.saturating_duration_since(Instant::now());
            from.recv_timeout(rest).map_err(|error| match error {
                RecvTimeoutError::Disconnected => self.lost(rank),
                RecvTimeoutError::Timeout => CollectiveError::Timeout { rank, waited: self.timeout },
            })
        };
        from.iter().enumerate().map(receive).collect()
    }
}
