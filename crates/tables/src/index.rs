use crate::{IdMap, Placed};
use foldhash::fast::RandomState;
use scc::HashIndex;
use std::fmt;
use std::sync::Arc;

/// The rows of ids, shared by threads that look up and one that applies changes.
#[derive(Clone, Default)]
pub struct Rows(Arc<HashIndex<i64, u32, RandomState>>);

impl From<&IdMap> for Rows {
    /// The rows of a map now.
    fn from(map: &IdMap) -> Self {
        let rows = Self::default();
        map.ids().for_each(|(id, row)| rows.insert(id, row));
        rows
    }
}

impl Rows {
    /// The row of an id.
    pub fn row(&self, id: i64) -> Option<u32> {
        self.0.peek_with(&id, |_, row| *row)
    }

    /// Applies the [changes](IdMap::changes) of a map whose rows these were. A lookup meanwhile finds the row before or after them, or none.
    pub fn apply(&self, changes: &[Placed]) {
        for id in changes.iter().filter_map(|placed| placed.evicted) {
            self.0.remove_sync(&id);
        }
        changes.iter().for_each(|placed| self.insert(placed.id, placed.row));
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without ids.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn insert(&self, id: i64, row: u32) {
        let is_new = self.0.insert_sync(id, row).is_ok();
        debug_assert!(is_new, "{id} has a row");
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ids", self.len())
    }
}
