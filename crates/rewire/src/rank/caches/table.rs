//! The owners of the cache's pages.

use super::CacheLimits;
use crate::rank::User;
use rewire_runtime::SpilledRows;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Hashes of a history: of its prefix, then one per event, over it and all earlier events.
pub(crate) type Chain = Vec<u128>;

/// The cache entry of a user.
#[derive(Debug)]
pub(super) struct Entry {
    pub chain: Chain,
    pub rows: usize,
    pub place: Place,
    used: u64,
}

#[derive(Debug)]
pub(super) enum Place {
    /// On the device, in these pages.
    Pages(Vec<u32>),
    Host(SpilledRows),
}

/// Users with their pages, and pages without users.
#[derive(Debug)]
pub(super) struct Table {
    entries: HashMap<User, Entry>,
    free: Vec<u32>,
    /// Users on the device and on the host, least recently used first.
    on_device: BTreeMap<u64, User>,
    on_host: BTreeMap<u64, User>,
    clock: u64,
    pub page_rows: usize,
    pub pages: usize,
    host_limit: u64,
    pub host_bytes: u64,
}

impl Table {
    /// All pages free.
    pub fn new(limits: &CacheLimits, pages: usize) -> Self {
        Self {
            entries: HashMap::new(),
            free: (0..pages as u32).rev().collect(),
            on_device: BTreeMap::new(),
            on_host: BTreeMap::new(),
            clock: 0,
            page_rows: limits.page_rows.max(1),
            pages,
            host_limit: limits.host_bytes,
            host_bytes: 0,
        }
    }

    pub fn users(&self) -> usize {
        self.entries.len()
    }

    pub fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// A timestamp later than all uses so far.
    pub fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub fn get(&self, user: &User) -> Option<&Entry> {
        self.entries.get(user)
    }

    /// Removes and returns a user's entry, to be changed and put back by [`Table::insert`].
    pub fn take(&mut self, user: &User) -> Option<Entry> {
        let entry = self.entries.remove(user)?;
        match &entry.place {
            Place::Pages(_) => self.on_device.remove(&entry.used),
            Place::Host(spilled) => {
                self.host_bytes -= spilled.bytes();
                self.on_host.remove(&entry.used)
            }
        };
        Some(entry)
    }

    /// Inserts a user's entry and marks it as used now.
    pub fn insert(&mut self, user: &User, chain: Chain, rows: usize, place: Place) {
        let used = self.now();
        self.insert_used(user.clone(), Entry { chain, rows, place, used });
    }

    fn insert_used(&mut self, user: User, entry: Entry) {
        match &entry.place {
            Place::Pages(_) => self.on_device.insert(entry.used, user.clone()),
            Place::Host(spilled) => {
                self.host_bytes += spilled.bytes();
                self.on_host.insert(entry.used, user.clone())
            }
        };
        self.entries.insert(user, entry);
    }

    /// Removes a user's entry.
    pub fn remove(&mut self, user: &User) -> bool {
        match self.take(user).map(|entry| entry.place) {
            Some(Place::Pages(pages)) => self.give(pages),
            Some(Place::Host(_)) => {}
            None => return false,
        }
        true
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        let users: Vec<User> = self.entries.keys().cloned().collect();
        for user in &users {
            self.remove(user);
        }
    }

    pub fn give(&mut self, pages: Vec<u32>) {
        self.free.extend(pages);
    }

    /// Allocates free pages, if enough are free.
    pub fn allocate(&mut self, pages: usize) -> Option<Vec<u32>> {
        let rest = self.free.len().checked_sub(pages)?;
        Some(self.free.split_off(rest))
    }

    /// The least recently used user on the device, if last used before a given time.
    pub fn oldest(&self, before: u64) -> Option<User> {
        self.on_device.first_key_value().filter(|(used, _)| **used < before).map(|(_, user)| user.clone())
    }

    /// Evicts the least recently used users from the host until the bytes may fit; false if they cannot.
    pub fn make_host_room(&mut self, bytes: u64) -> bool {
        if bytes > self.host_limit {
            return false;
        }
        while self.host_bytes + bytes > self.host_limit {
            let Some(user) = self.on_host.values().next().cloned() else { return false };
            self.remove(&user);
        }
        true
    }

    /// Moves a user whose pages are reused to the host.
    pub fn spill(&mut self, user: &User, spilled: SpilledRows) {
        let Some(Entry { chain, rows, place, used }) = self.take(user) else { return };
        if let Place::Pages(pages) = place {
            self.give(pages);
        }
        self.insert_used(user.clone(), Entry { chain, rows, place: Place::Host(spilled), used });
    }

    /// The number of pages for these rows.
    pub fn pages_of(&self, rows: usize) -> usize {
        rows.div_ceil(self.page_rows)
    }

    /// The rows of the cache that pages hold.
    pub fn rows_of(&self, pages: &[u32], rows: usize) -> Vec<u32> {
        let size = self.page_rows as u32;
        pages.iter().flat_map(|page| page * size..(page + 1) * size).take(rows).collect()
    }

    /// [`Table::rows_of`] as ranges.
    pub fn ranges_of(&self, pages: &[u32], rows: usize) -> Vec<Range<usize>> {
        let full = pages.iter().enumerate().map(|(place, &page)| {
            let (start, left) = (page as usize * self.page_rows, rows.saturating_sub(place * self.page_rows));
            start..start + left.min(self.page_rows)
        });
        full.filter(|range| !range.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(&CacheLimits { page_rows: 4, ..CacheLimits::default() }, 3)
    }

    #[test]
    fn pages_go_round() {
        let mut table = table();
        assert_eq!([0, 1, 4, 5].map(|rows| table.pages_of(rows)), [0, 1, 1, 2]);
        let pages = table.allocate(2).unwrap();
        assert_eq!((table.rows_of(&pages, 6), table.ranges_of(&pages, 6)), (vec![4, 5, 6, 7, 0, 1], vec![4..8, 0..2]));
        assert_eq!(table.allocate(2), None);
        table.insert(&"a".into(), vec![1], 6, Place::Pages(pages));
        let last = table.allocate(1).unwrap();
        table.insert(&"b".into(), vec![2], 3, Place::Pages(last));
        let now = table.now();
        assert_eq!(table.oldest(now), Some("a".into()));
        let Some(Entry { chain, rows, place, .. }) = table.take(&"a".into()) else { panic!("a is gone") };
        table.insert(&"a".into(), chain, rows, place);
        assert_eq!((table.oldest(now), table.oldest(0)), (Some("b".into()), None));
        assert!(table.remove(&"a".into()) && !table.remove(&"a".into()));
        assert_eq!((table.free_pages(), table.users()), (2, 1));
        table.clear();
        assert_eq!((table.free_pages(), table.users()), (3, 0));
    }
}
