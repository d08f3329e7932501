//! Rows of a parameter that updates replaced.

use rewire_graph::HostTensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of a block.
const BLOCK: usize = 1 << 9;

/// New rows of a matrix, in its storage type.
#[derive(Clone, Debug)]
pub(crate) struct RowChange {
    pub rows: Vec<u32>,
    /// One row for each of `rows`; later ones take precedence.
    pub values: HostTensor,
}

impl RowChange {
    /// These rows, and later ones of the same matrix.
    pub fn and(mut self, later: Self) -> Option<Self> {
        self.rows.extend(later.rows);
        let shape = vec![self.rows.len(), *self.values.shape().last()?];
        let bytes = [self.values.bytes(), later.values.bytes()].concat();
        Some(Self { rows: self.rows, values: HostTensor::from_bytes(self.values.dtype(), shape, bytes).ok()? })
    }
}

/// The rows of a matrix that updates replaced, in its storage type and the layout of a host tensor. Clones share blocks
/// of rows, so an update copies only the blocks that it changes. Together they use at most the bytes of the matrix.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowPatch {
    row_bytes: usize,
    blocks: Vec<Option<Arc<Block>>>,
}

/// The replaced rows among neighbouring ones, in ascending order.
#[derive(Debug, Default)]
struct Block {
    rows: Vec<u32>,
    bytes: Vec<u8>,
}

impl RowPatch {
    /// Adds replaced rows.
    pub fn set(&mut self, change: &RowChange) {
        let row_bytes = change.values.bytes().len() / change.rows.len().max(1);
        if row_bytes == 0 {
            return;
        }
        self.row_bytes = row_bytes;
        let mut changed: BTreeMap<usize, BTreeMap<u32, &[u8]>> = BTreeMap::new();
        for (row, bytes) in change.rows.iter().zip(change.values.bytes().chunks_exact(row_bytes)) {
            changed.entry(*row as usize / BLOCK).or_default().insert(*row, bytes);
        }
        let last = changed.keys().next_back().map_or(0, |last| last + 1);
        self.blocks.resize(self.blocks.len().max(last), None);
        for (block, rows) in changed {
            let place = &mut self.blocks[block];
            *place = Some(Arc::new(place.take().unwrap_or_default().with(rows, row_bytes)));
        }
    }

    /// A replaced row.
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let block = self.blocks.get(row / BLOCK)?.as_ref()?;
        let place = block.rows.binary_search(&u32::try_from(row).ok()?).ok()?;
        block.bytes.get(place * self.row_bytes..(place + 1) * self.row_bytes)
    }

    /// The bytes of the matrix, given its original bytes.
    pub fn applied(&self, given: &HostTensor) -> Option<HostTensor> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(given.bytes().len()).ok()?;
        bytes.extend_from_slice(given.bytes());
        for block in self.blocks.iter().flatten() {
            for (row, content) in block.rows.iter().zip(block.bytes.chunks_exact(self.row_bytes)) {
                let start = *row as usize * self.row_bytes;
                bytes.get_mut(start..start + self.row_bytes)?.copy_from_slice(content);
            }
        }
        HostTensor::from_bytes(given.dtype(), given.shape().to_vec(), bytes).ok()
    }

    /// Bytes of the replaced rows.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().flatten().map(|block| block.bytes.len() as u64).sum()
    }
}

impl Block {
    /// The same rows with further rows added or replaced.
    fn with(&self, others: BTreeMap<u32, &[u8]>, row_bytes: usize) -> Self {
        let own = self.rows.iter().copied().zip(self.bytes.chunks_exact(row_bytes));
        let mut all: BTreeMap<u32, &[u8]> = own.collect();
        all.extend(others);
        let mut bytes = Vec::with_capacity(all.len() * row_bytes);
        all.values().for_each(|row| bytes.extend_from_slice(row));
        Self { rows: all.into_keys().collect(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(rows: &[u32], first: f32) -> RowChange {
        let values: Vec<f32> = (0..rows.len() * 3).map(|n| first + n as f32).collect();
        RowChange { rows: rows.to_vec(), values: HostTensor::f32([rows.len(), 3], &values).unwrap() }
    }

    #[test]
    fn later_rows_replace_earlier_ones_and_clones_keep_theirs() {
        let zeros = HostTensor::f32([2000, 3], &[0.0; 6000]).unwrap();
        let mut patch = RowPatch::default();
        patch.set(&change(&[3, 1999, 3], 10.0));
        let before = patch.clone();
        patch.set(&change(&[511, 512, 1999], 100.0));
        let rows = |patch: &RowPatch| {
            let all = patch.applied(&zeros).unwrap().to_f32();
            let changed = all.chunks(3).enumerate().filter(|(_, row)| row[0] != 0.0);
            changed.map(|(at, row)| (at, row[0])).collect::<Vec<_>>()
        };
        assert_eq!(rows(&before), [(3, 16.0), (1999, 13.0)]);
        assert_eq!(rows(&patch), [(3, 16.0), (511, 100.0), (512, 103.0), (1999, 106.0)]);
        assert_eq!((before.bytes(), patch.bytes()), (24, 48));
        assert_eq!(patch.get(512).map(<[u8]>::len), Some(12));
        assert!(patch.get(4).is_none() && patch.get(1 << 40).is_none() && RowPatch::default().get(0).is_none());
    }
}
