//! Cache of the most frequent rows of tables on the host.

use super::frequent_rows::{FrequentRows, OVERHEAD};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of a cache that threads lock separately.
const SHARDS: usize = 64;

/// Copies of the rows of a table that are looked up most often, within a limit of bytes.
#[derive(Debug)]
pub(crate) struct RowCache(Vec<Mutex<Shard>>);

#[derive(Debug)]
struct Shard {
    row_bytes: usize,
    rows: FrequentRows,
    /// By place.
    bytes: Vec<u8>,
}

impl RowCache {
    /// A cache of `limit` bytes; `None` if that is less than a row for each part.
    pub fn new(row_bytes: usize, limit: u64) -> Option<Self> {
        let each = u64::try_from(row_bytes + OVERHEAD).ok()? * SHARDS as u64;
        let capacity = usize::try_from(limit / each).ok().filter(|capacity| *capacity > 0)?;
        let shard = || Shard { row_bytes, rows: FrequentRows::new(capacity), bytes: vec![] };
        Some(Self((0..SHARDS).map(|_| Mutex::new(shard())).collect()))
    }

    /// Passes a row to `copy`; false if it is not cached.
    pub fn read(&self, row: usize, copy: &mut dyn FnMut(&[u8])) -> bool {
        let Some((mut shard, row)) = self.shard(row) else { return false };
        let Some(place) = shard.rows.find(row) else { return false };
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
    fn offer(&mut self, row: u32, content: &[u8]) {
        if content.len() != self.row_bytes || self.rows.contains(row) {
            return;
        }
        let Some(place) = self.rows.reserve(row) else { return };
        let start = place * self.row_bytes;
        self.bytes.resize(self.bytes.len().max(start + self.row_bytes), 0);
        self.bytes[start..start + self.row_bytes].copy_from_slice(content);
        self.rows.hold(place, row);
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
        let limit = (4 + OVERHEAD) as u64 * 6400;
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
