//! Tables from which the host copies rows.

use super::Backing;
use super::row_cache::RowCache;
use super::row_patch::RowPatch;
use crate::cpu::{CpuError, Memory, RowOverlay};
use rewire_graph::{DType, HostTensor};
use std::sync::Arc;

/// A table from which the host copies rows: replaced rows, frequently used rows, and all others.
#[derive(Clone, Debug)]
pub(crate) struct HostTable {
    /// The table with which the model was loaded.
    pub given: HostTensor,
    pub patch: RowPatch,
    /// Rows of `given`, which versions of a table share.
    pub cache: Option<Arc<RowCache>>,
    /// The owners of the memory of `given`.
    pub backing: Arc<[Arc<dyn Backing>]>,
}

impl HostTable {
    /// Bytes of copies of rows.
    pub fn bytes(&self) -> u64 {
        self.patch.bytes() + self.cache.as_ref().map_or(0, |cache| cache.bytes())
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.given.shape().first().copied().unwrap_or(0)
    }

    /// Copies of rows as elements of a type.
    pub fn copies(&self, rows: &[u32], dtype: DType) -> Result<HostTensor, CpuError> {
        let width = self.given.shape().last().copied().unwrap_or(0);
        let ids: Vec<i64> = rows.iter().map(|row| i64::from(*row)).collect();
        let mut copies = Memory::new(dtype, &[rows.len(), width])?;
        copies.copy_rows(&self.given, self, &Memory::from_host(&HostTensor::lengths(&ids))?)?;
        copies.to_host()
    }
}

impl RowOverlay for HostTable {
    fn read(&self, row: usize, copy: &mut dyn FnMut(&[u8])) -> bool {
        match self.patch.get(row) {
            Some(replaced) => {
                copy(replaced);
                true
            }
            None => self.cache.as_ref().is_some_and(|cache| cache.read(row, copy)),
        }
    }

    fn will_read(&self, rows: &[usize]) {
        // Without a cache, rows are expected to be in memory, where prefetching costs more than reading.
        if self.cache.is_none() {
            return;
        }
        let row_bytes = self.given.bytes().len() / self.height().max(1);
        for row in rows {
            let content = self.given.bytes().get(row * row_bytes..(row + 1) * row_bytes);
            content.into_iter().for_each(|row| self.backing.iter().for_each(|backing| backing.read_ahead(row)));
        }
    }

    fn was_read(&self, row: usize, content: &[u8]) {
        self.cache.iter().for_each(|cache| cache.offer(row, content));
    }
}
