//! Cache of the most frequent rows of tables on the host.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of a cache that threads lock separately.
const SHARDS: usize = 64;

/// Bytes of a row in addition to its content: its entry in the map, its number and its count.
const OVERHEAD: usize = 32;

/// Number of rows that are compared to find the least used one.
const SAMPLE: usize = 8;

/// Counters per row of the cache, and lookups per counter until all are halved.
const COUNTERS: usize = 8;
const AGE: u32 = 4;

/// A cache of the most frequent rows of a table, within a limit of bytes. A row replaces another one once it has more
/// recent lookups (TinyLFU, Einziger, Friedman and Manes 2017, with one hash function).
#[derive(Debug)]
pub(crate) struct RowCache(Vec<Mutex<Shard>>);

#[derive(Debug)]
struct Shard {
    row_bytes: usize,
    capacity: usize,
    places: HashMap<u32, usize>,
    /// Per slot: the row, its lookups, and its bytes.
    rows: Vec<u32>,
    counts: Vec<u8>,
    bytes: Vec<u8>,
    /// Lookups of rows outside of the cache, by hash.
    seen: Vec<u8>,
    lookups: u32,
    hand: usize,
}

impl RowCache {
    /// A cache of `limit` bytes; `None` if that is less than a row for each part.
    pub fn new(row_bytes: usize, limit: u64) -> Option<Self> {
        let each = u64::try_from(row_bytes + OVERHEAD + COUNTERS).ok()? * SHARDS as u64;
        let capacity = usize::try_from(limit / each).ok().filter(|capacity| *capacity > 0)?;
        let shard = || Shard {
            row_bytes,
            capacity,
            places: HashMap::new(),
            rows: vec![],
            counts: vec![],
            bytes: vec![],
            seen: vec![0; capacity * COUNTERS],
            lookups: 0,
            hand: 0,
        };
        Some(Self((0..SHARDS).map(|_| Mutex::new(shard())).collect()))
    }

    /// Passes a row to `copy`; false if it is not cached.
    pub fn read(&self, row: usize, copy: &mut dyn FnMut(&[u8])) -> bool {
        let Some((mut shard, row)) = self.shard(row) else { return false };
        shard.age();
        let Some(&place) = shard.places.get(&row) else { return false };
        shard.counts[place] = shard.counts[place].saturating_add(1);
        copy(&shard.bytes[place * shard.row_bytes..][..shard.row_bytes]);
        true
    }

    /// Counts a row that was read from the table, and caches it if it has more lookups than another one.
    pub fn offer(&self, row: usize, content: &[u8]) {
        if let Some((mut shard, row)) = self.shard(row) {
            shard.offer(row, content);
        }
    }

    /// Bytes of the cached rows.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|shard| locked(shard)).map(|shard| shard.bytes.capacity() as u64).sum()
    }

    fn shard(&self, row: usize) -> Option<(MutexGuard<'_, Shard>, u32)> {
        Some((locked(self.0.get(row % SHARDS)?), u32::try_from(row).ok()?))
    }
}

fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    /// Halves all counts after a number of lookups, so that unused rows are evicted.
    fn age(&mut self) {
        self.lookups += 1;
        if self.lookups as usize > self.seen.len().saturating_mul(AGE as usize) {
            self.lookups = 0;
            self.seen.iter_mut().chain(&mut self.counts).for_each(|count| *count /= 2);
        }
    }

    fn offer(&mut self, row: u32, content: &[u8]) {
        if content.len() != self.row_bytes || self.places.contains_key(&row) {
            return;
        }
        let counter = (u64::from(row) / SHARDS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let counter = counter as usize % self.seen.len();
        self.seen[counter] = self.seen[counter].saturating_add(1);
        let count = self.seen[counter];
        if self.rows.len() < self.capacity {
            self.places.insert(row, self.rows.len());
            self.rows.push(row);
            self.counts.push(count);
            self.bytes.extend_from_slice(content);
            return;
        }
        let sample = (0..SAMPLE.min(self.capacity)).map(|next| (self.hand + next) % self.capacity);
        let Some(place) = sample.min_by_key(|place| self.counts[*place]) else { return };
        self.hand = (self.hand + SAMPLE) % self.capacity;
        if count > self.counts[place] {
            self.places.remove(&self.rows[place]);
            self.places.insert(row, place);
            self.rows[place] = row;
            self.counts[place] = count;
            self.bytes[place * self.row_bytes..][..self.row_bytes].copy_from_slice(content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hit rate of a cache of `rows` rows for the given lookups.
    fn hits(cache: &RowCache, rows: impl Iterator<Item = usize>) -> f64 {
        let (mut found, mut all) = (0, 0);
        for row in rows {
            let content = (row as u32).to_le_bytes();
            all += 1;
            let mut copied = None;
            match cache.read(row, &mut |bytes| copied = Some(bytes.to_vec())) {
                true => {
                    assert_eq!(copied.as_deref(), Some(&content[..]), "row {row}");
                    found += 1;
                }
                false => cache.offer(row, &content),
            }
        }
        f64::from(found) / f64::from(all)
    }

    fn noise(seed: u64) -> impl Iterator<Item = usize> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        })
    }

    #[test]
    fn rows_that_are_looked_up_often_stay_among_others() {
        let limit = (4 + OVERHEAD + COUNTERS) as u64 * 6400;
        let cache = RowCache::new(4, limit).unwrap();
        // Every second lookup reads one of 5000 rows, the others one of a million.
        let mixed = |seed: u64, first: usize| {
            noise(seed).map(move |n| if n % 2 == 0 { first + n / 2 % 5000 } else { n / 2 % 1_000_000 })
        };
        hits(&cache, mixed(1, 0).take(200_000));
        let found = hits(&cache, mixed(2, 0).take(50_000));
        assert!(found > 0.45, "{found}");
        // Others replace them.
        hits(&cache, mixed(3, 500_000).take(400_000));
        let found = hits(&cache, mixed(4, 500_000).take(50_000));
        assert!(found > 0.45 && cache.bytes() <= limit, "{found}, {} bytes", cache.bytes());
        assert!(RowCache::new(4, 100).is_none());
    }
}
