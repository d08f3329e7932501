//! Changes of a map over several steps.

use crate::{MapState, MapStep, Placed};
use std::collections::BTreeMap;

/// The use of a row's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowUse {
    /// The row.
    pub row: u32,
    /// The count of its id.
    pub count: u32,
    /// The last step in which its id occurred.
    pub last: u32,
}

/// Changes of a map since an earlier state of it, for [`MapState::change`] and [`Rows::with`](crate::Rows::with).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapChanges {
    /// The number of steps of the map.
    pub steps: u64,
    /// The rows whose ids changed, ascending.
    pub placed: Vec<Placed>,
    /// The rows whose ids were used, ascending.
    pub used: Vec<RowUse>,
}

/// Records which rows of a map change.
#[derive(Clone, Debug, Default)]
pub struct MapRecorder {
    used: RowSet,
    /// The original ids of changed rows; `None` if the row was free.
    evicted: BTreeMap<u32, Option<i64>>,
}

impl MapRecorder {
    /// Records a step.
    pub fn record(&mut self, step: &MapStep) {
        step.used.iter().for_each(|used| self.used.insert(used.row));
        for placed in &step.placed {
            self.evicted.entry(placed.row).or_insert(placed.evicted);
        }
    }

    /// The changes since the recorder was created or this was last called. `state` is the current state.
    pub fn take(&mut self, state: &MapState) -> MapChanges {
        let placed = |(row, evicted)| Some(Placed { row, id: state.id(row)?, evicted });
        let placed = std::mem::take(&mut self.evicted).into_iter().filter_map(placed);
        let used = |row: u32| {
            let entry = state.entries.get(row as usize)?;
            Some(RowUse { row, count: entry.count, last: entry.last })
        };
        MapChanges {
            steps: state.steps(),
            placed: placed.filter(|placed| placed.evicted != Some(placed.id)).collect(),
            used: std::mem::take(&mut self.used).rows().into_iter().filter_map(used).collect(),
        }
    }
}

/// A set of rows, one bit each.
#[derive(Clone, Debug, Default)]
pub struct RowSet(Vec<u64>);

impl RowSet {
    /// Adds a row.
    pub fn insert(&mut self, row: u32) {
        let (word, bit) = (row as usize / 64, row % 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    /// The rows in ascending order.
    ///
    /// ```
    /// let mut set = rewire_tables::RowSet::default();
    /// [700, 3, 64, 3, 63].into_iter().for_each(|row| set.insert(row));
    /// assert_eq!(set.rows(), [3, 63, 64, 700]);
    /// ```
    pub fn rows(&self) -> Vec<u32> {
        let bits = |(word, bits): (usize, &u64)| {
            let bits = *bits;
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word as u32 * 64 + bit)
        };
        self.0.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(bits).collect()
    }
}
