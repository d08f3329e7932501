//! How much is computed together.

use crate::requests::Sizes;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Users, events and candidates that a search begins with, and the most that it tries.
const LEAST: usize = 1 << 12;
pub const MOST: usize = 1 << 16;
/// Chunks of a size that are measured. The first one takes memory, too.
const CHUNKS: usize = 3;
/// What a larger size has to save of the time for an entry.
const GAIN: f64 = 0.05;

/// The size of chunks: given, or doubled for as long as that saves time.
pub struct BatchSize {
    size: Arc<AtomicUsize>,
    search: Mutex<Option<Search>>,
}

/// Sizes that were tried.
struct Search {
    size: usize,
    /// Seconds for an entry in chunks of that size.
    seconds: Vec<f64>,
    /// The least of the size before.
    before: f64,
}

impl BatchSize {
    pub fn new(given: Option<NonZeroUsize>) -> Self {
        let search = Search { size: LEAST, seconds: vec![], before: f64::INFINITY };
        let size = given.map_or(LEAST, NonZeroUsize::get);
        Self { size: Arc::new(AtomicUsize::new(size)), search: Mutex::new(given.is_none().then_some(search)) }
    }

    /// Entries of the next chunks.
    pub fn get(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Sizes of chunks that follow what is found.
    pub fn sizes(&self) -> Sizes {
        Sizes { first: vec![], later: self.size.clone() }
    }

    /// Takes the time of a chunk of about `size` entries, if that is what is measured.
    pub fn measured(&self, size: usize, entries: usize, time: Duration) {
        let mut search = self.search.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = search.as_mut().filter(|own| own.size == size && entries >= size) else { return };
        own.seconds.push(time.as_secs_f64() / entries as f64);
        if own.seconds.len() < CHUNKS {
            return;
        }
        let least = own.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let found = match least < own.before * (1.0 - GAIN) {
            true if size < MOST => size * 2,
            true => size,
            false => size / 2,
        };
        self.size.store(found, Ordering::Relaxed);
        *search = (found > size).then(|| Search { size: found, seconds: vec![], before: least });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size that is found where an entry takes so long in chunks of a size.
    fn found(seconds: impl Fn(usize) -> f64) -> usize {
        let batch = BatchSize::new(None);
        for _ in 0..100 {
            let size = batch.get();
            batch.measured(size, size + 3, Duration::from_secs_f64(seconds(size) * (size + 3) as f64));
            batch.measured(size, size / 2, Duration::ZERO);
            batch.measured(size / 2, size, Duration::ZERO);
        }
        batch.get()
    }

    #[test]
    fn sizes_grow_for_as_long_as_it_pays() {
        assert_eq!(found(|_| 1e-6), LEAST);
        assert_eq!(found(|size| 1e-6 + 1e-1 / size as f64), MOST);
        assert_eq!(found(|size| 1e-6 * (1.0 + 1000.0 / size as f64)), 1 << 14);
        let given = BatchSize::new(NonZeroUsize::new(7));
        (0..9).for_each(|_| given.measured(7, 7, Duration::from_secs(1)));
        assert_eq!(given.get(), 7);
    }
}
