//! Blocks of rows of samples and heads, and the keys that a mask makes visible to them.

use super::error::CpuError;
use super::memory::Memory;
use super::operand::{Env, count};
use super::store::{SharedOutputs, Target};
use super::tasks;
use crate::parallel::threads;
use rewire_graph::pointwise::{Dag, Interval, Intervals, Tri};
use rewire_graph::{Arrange, Dim};
use rewire_graph_rewrite::plan::Extent;
use std::ops::Range;

/// Maximum number of rows per block.
pub(super) const BLOCK: usize = 48;
/// Minimum number of keys for which mask bounds are computed.
pub(super) const KEYS: usize = 16;
/// Minimum number of tasks per thread, if there are enough blocks.
const TASKS: usize = 8;

/// A block of rows of one sample and head, and the number of keys of the sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub sample: usize,
    pub head: usize,
    pub row: usize,
    pub rows: usize,
    pub keys: usize,
}

/// Rows and keys of all samples and heads.
#[derive(Clone, Debug)]
pub(super) struct RowsAndKeys {
    /// Extents whose product is the number of samples.
    pub samples: Vec<Dim>,
    pub heads: usize,
    /// Rows per sample.
    pub rows: Extent,
    /// Keys per sample.
    pub keys: Extent,
}

impl RowsAndKeys {
    /// Runs all blocks on all threads. `state` creates the state of a thread from the extents of samples and the output
    /// targets.
    pub(super) fn for_each_block<'o, S>(
        &self,
        env: &Env<'_>,
        outputs: &'o mut [&mut Memory],
        state: impl Fn(Vec<usize>, Vec<Target<'o>>) -> Result<S, CpuError> + Sync,
        run: impl Fn(&mut S, Block) -> Result<(), CpuError> + Sync,
    ) -> Result<(), CpuError> {
        let extents = env.extents(&self.samples, "the samples")?;
        let samples = count(&extents, "the samples")?;
        let [rows, keys] = [env.rows(&self.rows, samples)?, env.rows(&self.keys, samples)?];
        let outputs = SharedOutputs::new(outputs)?;
        tasks::for_each(
            self.tasks(&rows, &keys),
            || state(extents.clone(), outputs.targets()),
            |state, blocks| blocks.into_iter().try_for_each(|block| run(state, block)),
        )
    }

    /// Tasks of blocks, for samples with the most keys first. With many samples, a task has several heads, which share masks. With
    /// few samples and heads, the blocks of each are divided among several tasks.
    fn tasks(&self, rows: &[usize], keys: &[usize]) -> Vec<Vec<Block>> {
        let heads = self.heads;
        let pairs = rows.iter().filter(|&&rows| rows > 0).count() * heads;
        // Every thread copies the keys of a divided head. Whole heads of a sample take equally long.
        let parts = if heads.is_multiple_of(threads()) { 1 } else { (TASKS * threads()).div_ceil(pairs.max(1)) };
        let together = (pairs / (TASKS * threads())).clamp(1, heads.max(1));
        let mut samples: Vec<usize> = (0..rows.len()).collect();
        samples.arrange_by_key(|&sample| std::cmp::Reverse(keys[sample]));
        let mut tasks = vec![];
        for (sample, first) in samples.into_iter().flat_map(|s| (0..heads).step_by(together).map(move |head| (s, head)))
        {
            let (all, keys) = (rows[sample], keys[sample]);
            for part in 0..parts.min(all.div_ceil(BLOCK)) {
                let starts = (0..all).step_by(BLOCK).rev().skip(part).step_by(parts);
                let block = |head, row| Block { sample, head, row, rows: BLOCK.min(all - row), keys };
                let of_heads = (first..heads.min(first + together))
                    .flat_map(|head| starts.clone().map(move |row| block(head, row)));
                tasks.push(of_heads.collect());
            }
        }
        tasks
    }
}

/// Finds the keys that a mask makes visible to a block.
pub(super) struct VisibleTiles<'a> {
    pub dag: &'a Dag,
    pub env: &'a Env<'a>,
    pub mask: &'a Intervals,
    /// The coordinate of keys.
    pub key: usize,
}

impl VisibleTiles<'_> {
    /// Ranges of keys that are visible to some row, each with true if some of its pairs may be masked. Adjacent ranges of
    /// the same kind are merged. `coords` are the bounds of the block.
    pub(super) fn ranges(
        &self,
        mut coords: Vec<Interval>,
        keys: usize,
        known: &mut Vec<Interval>,
    ) -> Vec<(Range<usize>, bool)> {
        self.mask.prepare(self.dag, self.env, &coords, known);
        let mut seen: Vec<(Range<usize>, bool)> = vec![];
        // A stack of ranges, halved until they are wholly masked or unmasked. The first keys are on top.
        let mut ranges = vec![(0, keys.next_multiple_of(KEYS).next_power_of_two())];
        while let Some((start, size)) = ranges.pop() {
            let count = size.min(keys.saturating_sub(start));
            if count == 0 {
                continue;
            }
            coords[self.key] = range(start, count);
            let found = self.mask.advance(self.dag, self.env, &coords, known).truth();
            if found == Tri::Sometimes && size > KEYS {
                ranges.extend([(start + size / 2, size / 2), (start, size / 2)]);
                continue;
            }
            let masked = found == Tri::Sometimes;
            match seen.last_mut() {
                _ if found == Tri::Never => {}
                Some(last) if last.1 == masked && last.0.end == start => last.0.end += count,
                _ => seen.push((start..start + count, masked)),
            }
        }
        seen
    }
}

/// The interval of `count` consecutive integers.
pub(super) fn range(start: usize, count: usize) -> Interval {
    Interval::new(start as f64, (start + count) as f64 - 1.0)
}
