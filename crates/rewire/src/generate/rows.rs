/// The free rows of a cache.
#[derive(Debug)]
pub(super) struct FreeRows(Vec<u32>);

impl FreeRows {
    /// All rows of a cache.
    pub fn new(rows: usize) -> Self {
        Self((0..u32::try_from(rows).unwrap_or(u32::MAX)).rev().collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Removes and returns up to this many rows.
    pub fn take(&mut self, count: usize) -> Vec<u32> {
        let left = self.0.len().saturating_sub(count);
        let mut rows = self.0.split_off(left);
        rows.reverse();
        rows
    }

    pub fn give_back(&mut self, rows: Vec<u32>) {
        self.0.extend(rows.into_iter().rev());
    }
}
