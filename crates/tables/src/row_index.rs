use crate::UNKNOWN;
use crate::state::Entry;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// A hash index from ids to rows. It stores only rows; the ids are in the `entries` passed to each call.
#[derive(Clone, Debug)]
pub(crate) struct RowIndex {
    rows: HashTable<u32>,
    hasher: RandomState,
}

impl From<&[Entry]> for RowIndex {
    fn from(entries: &[Entry]) -> Self {
        let mut index = Self { rows: HashTable::with_capacity(entries.len()), hasher: RandomState::default() };
        for (entry, row) in entries.iter().zip(0..) {
            if entry.id != UNKNOWN {
                index.insert(row, entries);
            }
        }
        index
    }
}

impl RowIndex {
    /// The row of an id.
    pub fn row(&self, id: i64, entries: &[Entry]) -> Option<u32> {
        self.rows.find(self.hasher.hash_one(id), |row| entries[*row as usize].id == id).copied()
    }

    /// Adds a row. Its id must not have another one.
    pub fn insert(&mut self, row: u32, entries: &[Entry]) {
        let hash = |row: &u32| self.hasher.hash_one(entries[*row as usize].id);
        self.rows.insert_unique(hash(&row), row, hash);
    }

    /// Removes the row of an id, even if its entry already has another id.
    pub fn remove(&mut self, id: i64, row: u32) {
        if let Ok(found) = self.rows.find_entry(self.hasher.hash_one(id), |own| *own == row) {
            found.remove();
        }
    }
}
