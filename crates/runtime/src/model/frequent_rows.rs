//! Selection of the rows of a table that are looked up most often.

use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Number of rows that are compared to find the least used one.
const SAMPLE: usize = 8;

/// Counters per slot, and lookups per counter until all counts are halved.
const COUNTERS: usize = 8;
const AGE: u32 = 4;

/// Bytes of host memory per slot: its map entry, its state, its count, and its counters.
pub(crate) const OVERHEAD: usize = 32 + COUNTERS;

/// The rows of a table with the most recent lookups, each with a slot of a cache. A row replaces another one once it has
/// more lookups (TinyLFU, Einziger, Friedman and Manes 2017, with one hash function).
#[derive(Debug)]
pub(crate) struct FrequentRows {
    capacity: usize,
    places: HashMap<u32, usize, RandomState>,
    /// Per slot.
    holders: Vec<Holder>,
    /// Per slot, the lookups of its row.
    counts: Vec<u8>,
    /// Lookups of rows without a slot, by hash.
    seen: Vec<u8>,
    lookups: u32,
    hand: usize,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nothing,
    /// For a row whose content is being copied.
    Reserved,
    Row(u32),
}

impl FrequentRows {
    /// Slots for `capacity` rows, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            capacity,
            places: HashMap::default(),
            holders: vec![],
            counts: vec![],
            seen: vec![0; capacity * COUNTERS],
            lookups: 0,
            hand: 0,
        }
    }

    /// True if a row has a slot.
    pub fn contains(&self, row: u32) -> bool {
        self.places.contains_key(&row)
    }

    /// Counts a lookup; returns the slot of the row.
    pub fn find(&mut self, row: u32) -> Option<usize> {
        self.age();
        let place = *self.places.get(&row)?;
        self.counts[place] = self.counts[place].saturating_add(1);
        Some(place)
    }

    /// Counts a lookup of a row without a slot, and reserves a slot if the row has more lookups than the one in it.
    pub fn reserve(&mut self, row: u32) -> Option<usize> {
        let count = self.seen(row);
        if self.holders.len() < self.capacity {
            self.holders.push(Holder::Reserved);
            self.counts.push(count);
            return Some(self.holders.len() - 1);
        }
        let sample = (0..SAMPLE.min(self.capacity)).map(|next| (self.hand + next) % self.capacity);
        let sample = sample.filter(|place| self.holders[*place] != Holder::Reserved);
        let place = sample.min_by_key(|place| self.counts[*place]);
        self.hand = (self.hand + SAMPLE) % self.capacity;
        let place = place.filter(|place| count > self.counts[*place])?;
        if let Holder::Row(other) = std::mem::replace(&mut self.holders[place], Holder::Reserved) {
            self.places.remove(&other);
        }
        self.counts[place] = count;
        Some(place)
    }

    /// Assigns a reserved slot to a row, or releases it if the row already has one.
    pub fn hold(&mut self, place: usize, row: u32) {
        if self.contains(row) {
            return self.release(place);
        }
        self.holders[place] = Holder::Row(row);
        self.places.insert(row, place);
    }

    /// Frees a slot.
    pub fn release(&mut self, place: usize) {
        (self.holders[place], self.counts[place]) = (Holder::Nothing, 0);
    }

    /// Evicts a row.
    pub fn remove(&mut self, row: u32) {
        if let Some(place) = self.places.remove(&row) {
            self.release(place);
        }
    }

    /// Evicts all rows. Reserved slots stay reserved.
    pub fn clear(&mut self) {
        self.places.clear();
        for place in 0..self.holders.len() {
            if self.holders[place] != Holder::Reserved {
                self.release(place);
            }
        }
    }

    /// Halves all counts after a number of lookups, so that unused rows are evicted.
    fn age(&mut self) {
        self.lookups += 1;
        if self.lookups as usize > self.seen.len().saturating_mul(AGE as usize) {
            self.lookups = 0;
            self.seen.iter_mut().chain(&mut self.counts).for_each(|count| *count /= 2);
        }
    }

    /// Counts a row without a place; returns its lookups.
    fn seen(&mut self, row: u32) -> u8 {
        let hash = u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let counter = hash as usize % self.seen.len();
        self.seen[counter] = self.seen[counter].saturating_add(1);
        self.seen[counter]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_places_are_not_taken() {
        let mut rows = FrequentRows::new(2);
        let [first, second] = [7, 8].map(|row| rows.reserve(row).unwrap());
        assert_eq!((rows.find(7), rows.reserve(9), rows.reserve(9)), (None, None, None));
        rows.hold(first, 7);
        // Seen three times, more often than row 7.
        assert_eq!(rows.reserve(9), Some(first));
        assert!(!rows.contains(7));
        rows.hold(second, 8);
        // Another caller was faster.
        rows.hold(first, 8);
        assert_eq!((rows.find(8), rows.reserve(10)), (Some(second), Some(first)));
        rows.clear();
        rows.hold(first, 10);
        assert_eq!((rows.find(8), rows.find(10)), (None, Some(first)));
        rows.remove(10);
        assert!(!rows.contains(10));
    }
}
