//! The batch size of predictions.

use crate::requests::Sizes;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Minimum and maximum of the search, in users, events and candidates.
const LEAST: usize = 1 << 12;
pub const MOST: usize = 1 << 16;
/// Measured chunks per size and thread. The chunks before them also allocate memory and compile kernels.
const CHUNKS: usize = 2;
/// Required speedup over the best size so far.
const GAIN: f64 = 1.05;
/// The search ends after this many sizes in a row without the speedup.
const MISSES: usize = 2;

/// The chunk size: given, or found by doubling it while that is faster.
pub struct BatchSize {
    size: Arc<AtomicUsize>,
    /// Compute threads.
    workers: usize,
    search: Mutex<Option<Search>>,
}

/// A search for the chunk size.
#[derive(Clone, Copy)]
struct Search {
    size: usize,
    /// Number of chunks of the current size, and entries of the measured ones, since the preceding chunk finished.
    chunks: usize,
    entries: usize,
    since: Option<Instant>,
    /// The fastest size so far with its entries per second, and the number of larger sizes that were not faster.
    best: (usize, f64),
    misses: usize,
}

impl BatchSize {
    pub fn new(given: Option<NonZeroUsize>, workers: usize) -> Self {
        let search = Search { size: LEAST, chunks: 0, entries: 0, since: None, best: (LEAST, 0.0), misses: 0 };
        let size = given.map_or(LEAST, NonZeroUsize::get);
        let search = Mutex::new(given.is_none().then_some(search));
        Self { size: Arc::new(AtomicUsize::new(size)), workers, search }
    }

    /// Entries of the next chunks.
    pub fn get(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// A handle to the current chunk size.
    pub fn sizes(&self) -> Sizes {
        Sizes { first: vec![], later: self.size.clone() }
    }

    /// Reports a finished chunk of about `size` entries, while other threads compute others. Sizes are compared by the throughput of
    /// all threads.
    pub fn done(&self, size: usize, entries: usize, now: Instant) {
        let mut search = self.search.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = search.as_mut().filter(|own| own.size == size && entries >= size) else { return };
        own.chunks += 1;
        let Some(since) = own.since else {
            own.since = (own.chunks >= self.workers).then_some(now);
            return;
        };
        own.entries += entries;
        if own.chunks < self.workers * (1 + CHUNKS) {
            return;
        }
        let rate = own.entries as f64 / now.saturating_duration_since(since).as_secs_f64();
        let next = own.next(rate);
        self.size.store(next.map_or(own.best.0, |next| next.size), Ordering::Relaxed);
        *search = next;
    }
}

impl Search {
    /// Records the entries per second of the size. Returns the search for twice that size, if it may be faster.
    fn next(&mut self, rate: f64) -> Option<Self> {
        if rate > self.best.1 * GAIN {
            (self.best, self.misses) = ((self.size, rate), 0);
        } else {
            self.misses += 1;
        }
        let goes_on = self.size < MOST && self.misses < MISSES;
        goes_on.then_some(Self { size: self.size * 2, chunks: 0, entries: 0, since: None, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The size found for a given time per entry by chunk size; the first chunk of a size needs one second more per entry.
    fn found(workers: usize, seconds: impl Fn(usize) -> f64) -> usize {
        let (batch, mut now) = (BatchSize::new(None, workers), Instant::now());
        let mut before = 0;
        for _ in 0..200 {
            let size = batch.get();
            let more = if before == size { 0.0 } else { 1.0 };
            before = size;
            now += Duration::from_secs_f64((more + seconds(size)) * (size + 3) as f64);
            batch.done(size, size + 3, now);
            batch.done(size, size / 2, now);
            batch.done(size / 2, size, now);
        }
        batch.get()
    }

    #[test]
    fn sizes_grow_for_as_long_as_it_pays() {
        for workers in [1, 2, 4] {
            assert_eq!(found(workers, |_| 1e-6), LEAST);
            assert_eq!(found(workers, |size| 1e-6 + 1e-1 / size as f64), MOST);
            assert_eq!(found(workers, |size| 1e-6 * (1.0 + 1000.0 / size as f64)), 1 << 14);
            // One slow size, for instance due to other load, is skipped; two end the search.
            let slow =
                |sizes: [usize; 2]| move |size: usize| if sizes.contains(&size) { 1.0 } else { 1.0 / size as f64 };
            assert_eq!(found(workers, slow([1 << 13; 2])), MOST);
            assert_eq!(found(workers, slow([1 << 14, 1 << 15])), 1 << 13);
        }
    }

    #[test]
    fn a_size_that_is_given_stays() {
        let (given, now) = (BatchSize::new(NonZeroUsize::new(7), 1), Instant::now());
        (0..9).for_each(|n| given.done(7, 7, now + Duration::from_secs(n)));
        assert_eq!(given.get(), 7);
    }
}
