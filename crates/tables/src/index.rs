use crate::{MapError, MapState, Placed};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The fraction of a table that changes before the whole table is rebuilt.
const FRACTION: usize = 8;
/// Number of changes below which a table is never rebuilt.
const LEAST: usize = 1 << 10;

/// The rows of ids in one version of a map, for lookups from any number of threads. Clones share the data. Versions share
/// a table, too: the next version stores only its changes, until these reach an eighth of the table.
#[derive(Clone, Default)]
pub struct Rows {
    table: Arc<HashMap<i64, u32, RandomState>>,
    /// Rows of ids that differ from the table; `None` for ids without a row.
    changed: Arc<HashMap<i64, Option<u32>, RandomState>>,
    len: usize,
}

impl From<&MapState> for Rows {
    fn from(state: &MapState) -> Self {
        let table: HashMap<i64, u32, RandomState> = state.ids().collect();
        Self { len: table.len(), table: Arc::new(table), changed: Arc::default() }
    }
}

impl Rows {
    /// The row of an id.
    pub fn row(&self, id: i64) -> Option<u32> {
        match self.changed.is_empty() {
            true => self.table.get(&id).copied(),
            false => self.changed.get(&id).copied().unwrap_or_else(|| self.table.get(&id).copied()),
        }
    }

    /// The next version: this one with [changes](crate::MapChanges::placed) applied.
    ///
    /// # Errors
    /// [`MapError`] for changes of another version.
    pub fn with(&self, changes: &[Placed]) -> Result<Self, MapError> {
        let mut next = Self { changed: Arc::new((*self.changed).clone()), ..self.clone() };
        let changed = Arc::make_mut(&mut next.changed);
        for Placed { row, evicted, .. } in changes {
            let Some(id) = evicted else { continue };
            if self.row(*id) != Some(*row) {
                return Err(MapError::Other { row: *row });
            }
            changed.insert(*id, None);
            next.len -= 1;
        }
        for Placed { row, id, .. } in changes {
            let before = changed.get(id).copied().unwrap_or_else(|| self.table.get(id).copied());
            if before.is_some() {
                return Err(MapError::Twice { id: *id });
            }
            changed.insert(*id, Some(*row));
            next.len += 1;
        }
        if changed.len() > LEAST + self.table.len() / FRACTION {
            let mut table = (*self.table).clone();
            for (id, row) in changed.drain() {
                match row {
                    Some(row) => drop(table.insert(id, row)),
                    None => drop(table.remove(&id)),
                }
            }
            next.table = Arc::new(table);
        }
        Ok(next)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ids", self.len)
    }
}
