use super::{Attention, AttentionVariant, Score, fill, reads_pairs};
use crate::hook::Element;
use crate::module::Module;
use crate::staged_rows::StagedRows;
use crate::template::{Template, template};
use crate::{EmitError, ParsedKernel};
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::schedule::Analysis;

static TEMPLATE: Template = template!("attention_cooperative.wgsl");

/// Halves by which rows of staged tiles are padded, and floats by which those of scores are.
const PADDING: u32 = 8;
const STAGE_PADDING: u32 = 4;
/// The widest head whose queries and sums fit the registers of a subgroup.
const WIDEST: u32 = 128;
/// Heads above this width are divided among fewer subgroups of more rows each, which read keys and values less often, or have scores
/// ahead.
const WIDE: u32 = 64;

/// Subgroups of a workgroup, for each matrix of queries that one holds, up to which they share queries.
const SUBGROUPS: u32 = 4;
/// Subgroups of a workgroup at most whose registers are all taken.
const MOST_SUBGROUPS: u32 = 8;
/// Heads up to this width leave registers for more keys at once.
const NARROW: u32 = 32;

/// How a workgroup's queries and keys are divided among subgroups and matrices.
#[derive(Clone, Copy)]
pub(super) struct CooperativeAttentionTile {
    size: u32,
    subgroup: u32,
    /// Widths, in whole matrices.
    depth: u32,
    value_depth: u32,
    /// Queries of a workgroup, and of a subgroup in matrices.
    rows: u32,
    row_matrices: u32,
    /// Keys of a tile.
    keys: u32,
    /// Subgroups that share queries.
    split: u32,
    /// Weights are computed in the registers that hold products.
    in_registers: bool,
    /// Scores of the tile that follows are computed beside the weights of one.
    scores_ahead: bool,
    /// Weights are the softmax of scores.
    softmax: bool,
}

impl CooperativeAttentionTile {
    /// The tile for attention that takes cooperative matrices: of f16, on a target that has them.
    pub fn new(kernel: &Attention<'_>, target: &Target, tuning: &Tuning) -> Result<Option<Self>, EmitError> {
        let Some((size, subgroup)) = target.cooperative().filter(|_| kernel.takes_halves()) else { return Ok(None) };
        let whole = |width: usize| (width.max(1) as u32).next_multiple_of(size);
        let (depth, value_depth) = (whole(kernel.parts.dot.width), whole(kernel.parts.element.width));
        if depth.max(value_depth) > WIDEST {
            return Ok(None);
        }
        let (width, in_registers) = (depth.max(value_depth), target.matrix_elements);
        // Matrices of queries of a subgroup, subgroups, and matrices of keys.
        let (suited, subgroups, suited_keys) = match in_registers {
            false => (1 + u32::from(width > WIDE && !kernel.softmax), None, 1),
            true if width <= NARROW => (1, Some(8), 2),
            // Registers of scores ahead hold what exponentials are added up in.
            true if width > WIDE && kernel.softmax => (2, Some(8), 1),
            true => (2, Some(4), 1),
        };
        let row_matrices = tuning.rows_per_thread.map_or(Ok(suited), |got| match got {
            1 | 2 => Ok(got),
            _ => Err(EmitError::Tuning { parameter: "rows_per_thread", expected: "1 or 2".to_owned(), got }),
        })?;
        let whole = |parameter, wanted: Option<u32>, unit: u32, default: u32| match wanted {
            Some(got) if got == 0 || got % unit != 0 || got > 8 * unit => {
                let expected = format!("a multiple of {unit} up to {}", 8 * unit);
                Err(EmitError::Tuning { parameter, expected, got })
            }
            _ => Ok(wanted.unwrap_or(default)),
        };
        let matrices = subgroups.map_or(8, |subgroups| subgroups * row_matrices);
        let rows = whole("rows", tuning.rows, row_matrices * size, matrices * size)?;
        let keys = whole("columns", tuning.columns, size, suited_keys * size)?;
        let whole_matrices = |split: &u32| [keys, value_depth].iter().all(|width| width.is_multiple_of(split * size));
        let few = |split: &u32| rows / (row_matrices * size) * split <= SUBGROUPS * row_matrices;
        let shared =
            [4, 2].into_iter().find(|split| !in_registers && !kernel.softmax && few(split) && whole_matrices(split));
        let split = shared.unwrap_or(1);
        if kernel.softmax && !in_registers && !(keys.is_power_of_two() && keys / 4 <= subgroup) {
            let expected = format!("a power of two up to {}, since lanes share rows", 4 * subgroup);
            return Err(EmitError::Tuning { parameter: "columns", expected, got: keys });
        }
        // Narrower heads are faster with the registers of more workgroups at once.
        let scores_ahead = in_registers && width > WIDE && !kernel.softmax;
        let softmax = kernel.softmax;
        let tile = Self {
            size,
            subgroup,
            depth,
            value_depth,
            rows,
            row_matrices,
            keys,
            split,
            in_registers,
            scores_ahead,
            softmax,
        };
        Ok(tile.smaller().find(|tile| tile.bytes() <= target.workgroup_bytes && tile.threads() <= target.invocations))
    }

    /// Queries of a workgroup.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Queries of a workgroup whose subgroups have one matrix of them each.
    pub fn fewer_rows(&self) -> u32 {
        self.rows.min(MOST_SUBGROUPS * self.size)
    }

    /// True if weights are computed in the registers that hold products.
    pub fn in_registers(&self) -> bool {
        self.in_registers
    }

    /// The tile, and those of fewer queries, which take less workgroup memory.
    fn smaller(self) -> impl Iterator<Item = Self> {
        let unit = self.row_matrices * self.size;
        let half = move |tile: &Self| {
            let rows = tile.rows / 2;
            (rows >= unit && rows.is_multiple_of(unit)).then_some(Self { rows, ..*tile })
        };
        std::iter::successors(Some(self), half)
    }

    fn subgroups(&self) -> u32 {
        self.rows / (self.row_matrices * self.size) * self.split
    }

    fn threads(&self) -> u32 {
        self.subgroups() * self.subgroup
    }

    /// Length of a row of a staged tile, in groups of four.
    fn pitch(width: u32) -> u32 {
        (width + PADDING) / 4
    }

    fn stage_pitch(&self) -> u32 {
        let columns = match self.in_registers {
            true => self.size,
            false => self.row_matrices * (self.keys / self.split).max(self.size),
        };
        (columns + STAGE_PADDING) / 4
    }

    /// Columns of matrices of results, and of those the ones that leave at once: as many as there are rows of matrices, which is how
    /// wide the stage is.
    fn columns(&self) -> (u32, u32) {
        let columns = self.value_depth / self.size / self.split;
        let several = !self.in_registers && columns.is_multiple_of(self.row_matrices);
        (columns, if several { self.row_matrices } else { 1 })
    }

    fn stage_length(&self) -> u32 {
        self.subgroups() * self.size * self.stage_pitch()
    }

    /// Length of a tile of keys and values.
    fn buffer_length(&self) -> u32 {
        self.keys * (Self::pitch(self.depth) + Self::pitch(self.value_depth))
    }

    fn tile_length(&self) -> u32 {
        let buffers = if self.in_registers { 2 } else { 1 };
        (buffers * self.buffer_length()).max(self.rows * Self::pitch(self.size))
    }

    /// Columns of the queries that are staged at once.
    fn chunk(&self) -> u32 {
        let fits = |matrices: &u32| self.rows * Self::pitch(matrices * self.size) <= self.tile_length();
        (1..=self.depth / self.size).rev().find(fits).unwrap_or(1) * self.size
    }

    /// Bytes of workgroup memory, but for the bounds of the mask.
    fn bytes(&self) -> u32 {
        let (weights, pages) = match self.in_registers {
            true => (0, 32 * self.subgroups()),
            false => (self.rows * Self::pitch(self.keys), 0),
        };
        let shifts = if self.softmax { 8 * self.rows } else { 0 };
        8 * (self.tile_length() + weights) + 16 * self.stage_length() + pages + shifts + 256
    }
}

/// Tiles of matrices.
pub(super) fn candidates(size: u32) -> Vec<Tuning> {
    let tile = |each: u32, queries: u32, keys: u32| Tuning {
        rows: Some(queries * size),
        columns: Some(keys * size),
        rows_per_thread: Some(each),
        ..Tuning::default()
    };
    let tiles = [1, 2].into_iter().flat_map(|keys| [2, 4, 8].map(|queries| (queries, keys))).chain([(2, 4), (4, 4)]);
    let tiles = tiles.flat_map(|(queries, keys)| [1, 2].map(|each| tile(each, queries, keys)));
    tiles.chain([tile(2, 16, 1)]).collect()
}

/// Emits attention of cooperative matrices.
pub(super) fn emit(
    kernel: &Attention<'_>,
    tile: &CooperativeAttentionTile,
    module: Module,
) -> Result<ParsedKernel, EmitError> {
    let (threads, pitch) = (tile.threads(), CooperativeAttentionTile::pitch);
    // Software drivers run a subgroup in step, and take its barriers for barriers of the workgroup, all of which would have to branch.
    let branch_barrier = if module.target.software { "" } else { "subgroupBarrier();" };
    let staged = |name, (width, depth): (usize, u32), base| {
        StagedRows { name, rows: tile.keys, width, depth, pitch: pitch(depth), base, threads, side_by_side: true }
            .variable()
    };
    let (columns, result_matrices) = tile.columns();
    let stage_groups = tile.size * (tile.keys / tile.split) / 4;
    let variables = vec![
        ("query_items", (tile.rows * tile.chunk() / 4).div_ceil(threads).into()),
        ("guarded", reads_pairs(kernel).into()),
        ("stage_groups", stage_groups.into()),
        ("stage_items", stage_groups.div_ceil(tile.subgroup).into()),
        ("element_items", (tile.size * tile.size / 4).div_ceil(tile.subgroup).into()),
        ("elements_held", (tile.size * tile.size).div_ceil(tile.subgroup).into()),
        ("softmax", tile.softmax.into()),
        ("branch_barrier", branch_barrier.into()),
        ("size", tile.size.into()),
        ("subgroup", tile.subgroup.into()),
        ("row_matrices", tile.row_matrices.into()),
        ("split", tile.split.into()),
        ("in_registers", tile.in_registers.into()),
        ("scores_ahead", tile.scores_ahead.into()),
        ("subgroups", tile.subgroups().into()),
        ("buffer_length", tile.buffer_length().into()),
        ("keys", tile.keys.into()),
        ("part_keys", (tile.keys / tile.split).into()),
        ("columns", columns.into()),
        ("result_matrices", result_matrices.into()),
        ("depth", tile.depth.into()),
        ("value_depth", tile.value_depth.into()),
        ("chunk", tile.chunk().into()),
        ("query_pitch", pitch(tile.chunk()).into()),
        ("weight_pitch", pitch(tile.keys).into()),
        ("tile_length", tile.tile_length().into()),
        ("stage_pitch", tile.stage_pitch().into()),
        ("stage_length", tile.stage_length().into()),
        ("key_tile", staged("key", (kernel.parts.dot.width, tile.depth), 0)),
        ("value_tile", staged("value", (kernel.parts.element.width, tile.value_depth), tile.keys * pitch(tile.depth))),
    ];
    let rows = tile.rows;
    let score = if tile.in_registers { Score::Element } else { Score::Four };
    fill(
        kernel,
        module,
        AttentionVariant { template: &TEMPLATE, threads, element: Element::Half, score, rows, variables },
    )
}
