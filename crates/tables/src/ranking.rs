use crate::Eviction;
use crate::state::Entry;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A refill ranks this fraction of all rows.
const FRACTION: usize = 16;

/// Rows by score, then by row, the lowest first.
///
/// Scores only grow, so rows in neither list score at least as high as those of `lowest` at the refill. A stored score may be
/// outdated; it is updated when its row becomes the lowest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranking {
    /// The lowest rows at the last refill, descending.
    lowest: Vec<(u64, u32)>,
    /// Rows of `lowest` whose scores have grown.
    grown: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Eviction {
    /// The score of an entry in a step, as an integer of the same order.
    pub(crate) fn score(self, entry: &Entry, step: u64) -> u64 {
        match self {
            Self::Lfu => entry.count.into(),
            Self::Lru => entry.last.into(),
            Self::DistanceLfu { decay_exponent } => {
                let distance = (step.saturating_sub(entry.last.into()) + 1) as f64;
                // Bit patterns of non-negative floats have the order of the floats.
                (f64::from(entry.count) / distance.powf(decay_exponent)).to_bits()
            }
        }
    }

    /// True if the score of an id changes only when it occurs.
    pub(crate) fn is_steady(self) -> bool {
        !matches!(self, Self::DistanceLfu { .. })
    }
}

impl Ranking {
    /// Clears the ranking; required after scores decreased.
    pub fn clear(&mut self) {
        self.lowest.clear();
        self.grown.clear();
    }

    /// The row with the lowest score, after its score. A refill ranks at least `count` rows.
    pub fn lowest(&mut self, count: usize, eviction: Eviction, entries: &[Entry], step: u64) -> Option<(u64, u32)> {
        let score = |row: u32| entries.get(row as usize).map(|entry| eviction.score(entry, step));
        loop {
            let Some(&(noted, row)) = self.lowest.last() else {
                if entries.is_empty() {
                    return None;
                }
                self.refill(count, entries.iter().map(|entry| eviction.score(entry, step)));
                continue;
            };
            let now = score(row)?;
            if noted != now {
                self.lowest.pop();
                self.grown.push(Reverse((now, row)));
                continue;
            }
            match self.grown.peek_mut() {
                Some(mut top) if top.0 < (now, row) => {
                    let (noted, other) = top.0;
                    let now = score(other)?;
                    if noted == now {
                        return Some((now, other));
                    }
                    *top = Reverse((now, other));
                }
                _ => return Some((now, row)),
            }
        }
    }

    fn refill(&mut self, count: usize, scores: impl Iterator<Item = u64>) {
        self.grown.clear();
        self.lowest = scores.zip(0..).collect();
        let count = count.max(self.lowest.len() / FRACTION);
        if count < self.lowest.len() {
            self.lowest.select_nth_unstable(count);
            self.lowest.truncate(count);
        }
        self.lowest.sort_unstable_by(|a, b| b.cmp(a));
    }
}
