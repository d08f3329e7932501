use crate::Placed;
use scc::HashIndex;
use std::fmt;
use std::sync::Arc;

/// The rows of ids, shared by threads that look up and a map that changes.
#[derive(Clone, Default)]
pub struct Rows(Arc<HashIndex<i64, u32>>);

impl Rows {
    /// The row of an id. While the map changes, it is the row before or after the change.
    pub fn row(&self, id: i64) -> Option<u32> {
        self.0.peek_with(&id, |_, row| *row)
    }

    /// Applies the [changes](crate::IdMap::changes) of a map whose rows these were. A lookup meanwhile finds the row before or after them,
    /// or none.
    pub fn apply(&self, changes: &[Placed]) {
        changes.iter().filter_map(|placed| placed.evicted).for_each(|id| self.remove(id));
        for placed in changes {
            self.insert(placed.id, placed.row);
        }
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without ids.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// False if the id has a row already.
    pub(crate) fn insert(&self, id: i64, row: u32) -> bool {
        self.0.insert_sync(id, row).is_ok()
    }

    pub(crate) fn remove(&self, id: i64) {
        self.0.remove_sync(&id);
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ids", self.len())
    }
}
