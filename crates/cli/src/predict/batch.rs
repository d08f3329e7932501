//! How much is computed together.

use crate::requests::Sizes;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Users, events and candidates that a search begins with, and the most that it tries.
const LEAST: usize = 1 << 12;
pub const MOST: usize = 1 << 16;
/// Chunks of a size that are measured, for each thread that computes. Those before take memory and compile kernels, too.
const CHUNKS: usize = 2;
/// How much faster than the best so far a size has to be.
const GAIN: f64 = 1.05;
/// Sizes in a row that are not, after which no larger one is tried.
const MISSES: usize = 2;

/// The size of chunks: given, or the fastest of sizes that are doubled for as long as that may pay.
pub struct BatchSize {
    size: Arc<AtomicUsize>,
    /// Threads that compute.
    workers: usize,
    search: Mutex<Option<Search>>,
}

/// A search among sizes.
#[derive(Clone, Copy)]
struct Search {
    size: usize,
    /// Chunks of that size so far, and the entries of those that are measured, since the chunk before them was done.
    chunks: usize,
    entries: usize,
    since: Option<Instant>,
    /// The fastest size so far and its entries a second, and how many larger ones were not faster.
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

    /// Sizes of chunks that follow what is found.
    pub fn sizes(&self) -> Sizes {
        Sizes { first: vec![], later: self.size.clone() }
    }

    /// A chunk of about `size` entries was done, while other threads computed others. Sizes are compared by what all of them get done.
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
    /// Takes the entries a second of the size. The search for twice that size, if it may pay.
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

    /// The size that is found where an entry takes so long in chunks of a size, the first of which takes a second more for each entry.
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
            // One size that is slow, as by work of others, is passed over; two end the search.
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
