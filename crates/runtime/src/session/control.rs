use super::sizes::Sizes;
use crate::model::Pool;
use crate::{GpuError, RunError};
use rewire_graph::{Arrange, Dim};
use rewire_graph_rewrite::device::{EmittedKernel, GridFactor, Param, TileList};
use rewire_graph_rewrite::plan::{Binding, Extent, HostSlot, Step};
use std::collections::HashMap;

/// Alignment in bytes of parameter blocks and of the sizes.
const ALIGNMENT: usize = 256;

/// The launch parameters of a run's kernels: a parameter block per step, then host vectors and tile lists.
#[derive(Debug, Default)]
pub(crate) struct LaunchParams {
    /// Content of the control buffer, little-endian words.
    pub words: Vec<i32>,
    /// The grid of each step, in the order of the blocks.
    pub grids: Vec<(u32, u32)>,
}

/// Layout of the blocks in the control buffer, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlLayout {
    blocks: Vec<u64>,
    end: u64,
}

impl ControlLayout {
    /// Reserves a parameter block for a kernel; returns its position among the blocks.
    pub fn reserve(&mut self, kernel: &EmittedKernel) -> usize {
        self.blocks.push(self.end);
        self.end += (block_bytes(kernel) as usize).next_multiple_of(ALIGNMENT) as u64;
        self.blocks.len() - 1
    }

    /// The start of a block.
    pub fn block(&self, position: usize) -> u64 {
        self.blocks[position]
    }

    /// The start of the sizes.
    pub fn sizes(&self) -> u64 {
        self.end
    }
}

/// Bytes of the parameter block of a kernel.
pub(crate) fn block_bytes(kernel: &EmittedKernel) -> u64 {
    kernel.params.len().max(1).div_ceil(4) as u64 * 16
}

/// Vectors that are in the sizes already, which steps share.
#[derive(Default)]
struct Shared {
    words: Vec<i32>,
    vectors: HashMap<HostSlot, usize>,
    lists: HashMap<(Rows, usize, u32, bool), (usize, usize)>,
}

/// The rows of a tile list, resolved.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Rows {
    Dense(i32),
    Ragged(HostSlot),
}

impl LaunchParams {
    /// Launch parameters for `kernels`, each with its step, in the order in which their blocks were reserved.
    pub fn new<'a>(
        kernels: impl Iterator<Item = (&'a EmittedKernel, &'a Step)>,
        layout: &ControlLayout,
        sizes: &Sizes,
        pool: &Pool,
        workgroups: u32,
    ) -> Result<Self, RunError> {
        let mut control = Self { words: vec![0; layout.end as usize / 4], grids: Vec::new() };
        let mut shared = Shared::default();
        for (position, (kernel, step)) in kernels.enumerate() {
            let lists = kernel
                .tile_lists
                .iter()
                .map(|list| shared.tile_list(list, step, sizes))
                .collect::<Result<Vec<_>, _>>()?;
            let total = total(kernel, &lists, step, sizes)?;
            let start = layout.block(position) as usize / 4;
            for (word, param) in control.words[start..].iter_mut().zip(&kernel.params) {
                *word = match param {
                    Param::Dim(dim) => sizes.dim(dim)?,
                    Param::HostBase(operand) => shared.vector(*operand, step, sizes)? as i32,
                    Param::PooledBase(operand) => match step.reads.get(usize::from(*operand)) {
                        Some(Binding::Buffer(id)) => pool.base(*id),
                        _ => None,
                    }
                    .ok_or_else(|| unbound(step, format!("pooled operand {operand}")))?,
                    Param::TileBase(list) => tile_list(&lists, *list, step)?.0 as i32,
                    Param::Workgroups => total as i32,
                };
            }
            control.grids.push(fold(total, workgroups, step)?);
        }
        control.words.extend(shared.words);
        // A binding is never empty.
        control.words.extend([0; 4]);
        Ok(control)
    }
}

impl Shared {
    fn vector(&mut self, operand: u16, step: &Step, sizes: &Sizes) -> Result<usize, RunError> {
        let Some(Binding::Host(slot)) = step.reads.get(usize::from(operand)).copied() else {
            return Err(unbound(step, format!("host operand {operand}")));
        };
        if let Some(&base) = self.vectors.get(&slot) {
            return Ok(base);
        }
        let declared =
            step.computation.body().operands.get(usize::from(operand)).and_then(|operand| operand.shape.first());
        let expected = declared.map_or(Ok(1), |dim| sizes.dim(dim))?;
        let values = sizes.slot(slot);
        if values.len() as i64 != i64::from(expected) {
            return Err(RunError::HostValue {
                what: format!("operand {operand} of step {} (`{}`)", step.name, step.path),
                expected: format!("{expected} entries"),
                value: values.len() as i64,
            });
        }
        let base = self.words.len();
        for &value in values {
            self.words.push(i32::try_from(value).map_err(|_| RunError::HostValue {
                what: format!("operand {operand} of step {} (`{}`)", step.name, step.path),
                expected: "a 32-bit integer".into(),
                value,
            })?);
        }
        self.words.resize(self.words.len().next_multiple_of(4), 0);
        self.vectors.insert(slot, base);
        Ok(base)
    }

    /// Fails if a tile list would be larger than any buffer of sizes, before it is created.
    fn check_room(
        &self,
        list: &TileList,
        rows: Rows,
        samples: usize,
        step: &Step,
        sizes: &Sizes,
    ) -> Result<(), RunError> {
        let tile = u64::from(list.tile.max(1));
        let tiles = match rows {
            Rows::Dense(count) => (count.max(0) as u64).div_ceil(tile).saturating_mul(samples as u64),
            Rows::Ragged(slot) => sizes.slot(slot).last().map_or(0, |&rows| rows.max(0) as u64 / tile + samples as u64),
        };
        let needed = tiles.max(samples as u64);
        if needed > LISTED {
            return Err(RunError::HostValue {
                what: format!("tiles of step {} (`{}`)", step.name, step.path),
                expected: format!("at most {LISTED}"),
                value: i64::try_from(needed).unwrap_or(i64::MAX),
            });
        }
        Ok(())
    }

    /// Start and number of the tiles of a list.
    fn tile_list(&mut self, list: &TileList, step: &Step, sizes: &Sizes) -> Result<(usize, usize), RunError> {
        let count = |all: usize, dim: &Dim| Ok::<_, RunError>(all.saturating_mul(sizes.dim(dim)?.max(0) as usize));
        let samples = list.samples.iter().try_fold(1, count)?;
        let rows = match &list.rows {
            Extent::Dense(dim) => Rows::Dense(sizes.dim(dim)?),
            Extent::Ragged { offsets } => match step.reads.get(usize::from(*offsets)) {
                Some(&Binding::Host(slot)) => Rows::Ragged(slot),
                _ => return Err(unbound(step, format!("operand {offsets}, which holds offsets,"))),
            },
        };
        let key = (rows, samples, list.tile, list.longest_first);
        if let Some(&known) = self.lists.get(&key) {
            return Ok(known);
        }
        self.check_room(list, rows, samples, step, sizes)?;
        let tiles = tiles(list, &row_counts(rows, samples, step, sizes)?);
        let placed = (self.words.len(), tiles.len());
        self.words.extend(tiles.into_iter().flat_map(|(sample, row)| [sample, row]));
        self.words.resize(self.words.len().next_multiple_of(4), 0);
        self.lists.insert(key, placed);
        Ok(placed)
    }
}

/// Limit of tiles and samples in the tile lists of a run.
const LISTED: u64 = 1 << 26;

/// The number of rows of every sample.
fn row_counts(rows: Rows, samples: usize, step: &Step, sizes: &Sizes) -> Result<Vec<i32>, RunError> {
    let slot = match rows {
        Rows::Dense(count) => return Ok(vec![count; samples]),
        Rows::Ragged(slot) => slot,
    };
    let offsets = sizes.slot(slot);
    let what = || format!("offsets of step {} (`{}`)", step.name, step.path);
    if offsets.len() != samples + 1 {
        let expected = format!("{} entries", samples + 1);
        return Err(RunError::HostValue { what: what(), expected, value: offsets.len() as i64 });
    }
    let count = |pair: &[i64]| match pair {
        &[start, end] => i32::try_from(end - start).map_err(|_| RunError::HostValue {
            what: what(),
            expected: "32-bit lengths".into(),
            value: end - start,
        }),
        _ => Ok(0),
    };
    offsets.windows(2).map(count).collect()
}

fn tiles(list: &TileList, rows: &[i32]) -> Vec<(i32, i32)> {
    let tile = list.tile.max(1) as usize;
    let mut tiles: Vec<(i32, i32)> = Vec::new();
    for (sample, &rows) in rows.iter().enumerate() {
        tiles.extend((0..rows).step_by(tile).map(|row| (sample as i32, row)));
    }
    if list.longest_first {
        // The first rows of a sample may be contextual; they attend to all of it.
        tiles.arrange_by_key(|&(_, row)| (row != 0, std::cmp::Reverse(row)));
    }
    tiles
}

fn unbound(step: &Step, what: String) -> RunError {
    RunError::Gpu(GpuError::Unbound { step: title(step), what })
}

/// Start and number of the tiles of a kernel's list.
fn tile_list(lists: &[(usize, usize)], list: u16, step: &Step) -> Result<(usize, usize), RunError> {
    lists.get(usize::from(list)).copied().ok_or_else(|| unbound(step, format!("tile list {list}")))
}

/// The number of workgroups. The points of a factor fit in 32 bits.
fn total(kernel: &EmittedKernel, lists: &[(usize, usize)], step: &Step, sizes: &Sizes) -> Result<u64, RunError> {
    kernel.grid.iter().try_fold(1u64, |total, factor| {
        let count = match factor {
            GridFactor::TileList(list) => tile_list(lists, *list, step)?.1 as u64,
            GridFactor::Tiles(dims, tile) => {
                let points = dims
                    .iter()
                    .try_fold(1u64, |product, dim| Ok::<_, RunError>(product.saturating_mul(sizes.dim(dim)? as u64)))?;
                let (tile, limit) = (u64::from(*tile).max(1), i32::MAX as u64);
                if points > limit.saturating_sub(tile) {
                    let (what, workgroups, limit) = (title(step), points / tile, limit / tile);
                    return Err(RunError::Gpu(GpuError::Grid { what, workgroups, limit }));
                }
                points.div_ceil(tile)
            }
        };
        Ok(total.saturating_mul(count))
    })
}

fn title(step: &Step) -> String {
    format!("step {} (`{}`)", step.name, step.path)
}

/// A two-dimensional grid within the limits, with at least `total` workgroups and few more.
fn fold(total: u64, limit: u32, step: &Step) -> Result<(u32, u32), RunError> {
    let rows = total.div_ceil(u64::from(limit).max(1)).max(1);
    let columns = total.div_ceil(rows);
    match (u32::try_from(columns), u32::try_from(rows)) {
        (Ok(columns), Ok(rows)) if rows <= limit && total <= i32::MAX as u64 => Ok((columns, rows)),
        _ => Err(RunError::Gpu(GpuError::Grid {
            what: title(step),
            workgroups: total,
            limit: (u64::from(limit) * u64::from(limit)).min(i32::MAX as u64),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph_rewrite::plan::{Body, Computation, Nest};

    #[test]
    fn a_grid_folds_evenly() {
        let computation = Computation::of(Nest::map(Body::default(), vec![1.into()], vec![])).unwrap();
        let step = Step { name: String::new(), path: String::new(), computation, reads: vec![], writes: vec![] };
        assert_eq!(fold(0, 65535, &step), Ok((0, 1)));
        assert_eq!(fold(65535, 65535, &step), Ok((65535, 1)));
        assert_eq!(fold(65536, 65535, &step), Ok((32768, 2)));
        assert!(fold(1 << 33, 65535, &step).is_err());
    }

    #[test]
    fn long_tiles_come_first() {
        let list = TileList { samples: vec![2.into()], rows: Extent::Dense(0.into()), tile: 4, longest_first: true };
        assert_eq!(tiles(&list, &[3, 9]), [(0, 0), (1, 0), (1, 8), (1, 4)]);
    }
}
