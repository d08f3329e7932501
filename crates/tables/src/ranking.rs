use crate::Eviction;
use crate::map::Entry;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rows by score, the lowest first. A score may have grown since it was noted: it is noted again when the row comes up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranking(BinaryHeap<Reverse<(u64, u32)>>);

impl Eviction {
    /// The score of an entry in a step. Scores compare as the numbers do.
    pub(crate) fn score(self, entry: &Entry, step: u64) -> u64 {
        match self {
            Self::Lfu => entry.count.into(),
            Self::Lru => entry.last.into(),
            Self::DistanceLfu { decay_exponent } => {
                let distance = (step.saturating_sub(entry.last.into()) + 1) as f64;
                // The bits of floats that are not negative are ordered as the floats.
                (f64::from(entry.count) / distance.powf(decay_exponent)).to_bits()
            }
        }
    }

    /// True if the score of an id changes only when it occurs.
    fn is_steady(self) -> bool {
        !matches!(self, Self::DistanceLfu { .. })
    }
}

impl Ranking {
    /// Ranks at least the `count` lowest of all rows, unless they are ranked.
    pub fn prepare(&mut self, count: usize, eviction: Eviction, entries: &[Entry], step: u64) {
        if eviction.is_steady() && !self.0.is_empty() {
            return;
        }
        let mut all: Vec<(u64, u32)> = entries.iter().map(|entry| eviction.score(entry, step)).zip(0..).collect();
        if !eviction.is_steady() && (1..all.len()).contains(&count) {
            all.select_nth_unstable(count - 1);
            all.truncate(count);
        }
        self.0 = all.into_iter().map(Reverse).collect();
    }

    /// The row with the lowest score.
    pub fn lowest(&mut self, eviction: Eviction, entries: &[Entry], step: u64) -> Option<(u64, u32)> {
        while let Some(mut top) = self.0.peek_mut() {
            let Reverse((noted, row)) = *top;
            let score = eviction.score(entries.get(row as usize)?, step);
            if noted == score {
                return Some((score, row));
            }
            *top = Reverse((score, row));
        }
        None
    }
}
