use super::{Parts, lies_along, place, result_coords, suits};
use crate::device_function::{Ahead, Element, Four, finish, finish_ahead, streamed};
use crate::module::Module;
use crate::template::{Main, Template, template};
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph::Dim;
use rewire_graph_rewrite::device::{SubgroupProductTile, Target};
use rewire_graph_rewrite::schedule::{Analysis, Bound, Product};

static TEMPLATE: Template = template!("matmul_cooperative.wgsl");

/// f16 values by which rows of staged tiles are padded.
const PADDING: u32 = 8;

/// Largest workgroup memory in bytes with which two workgroups fit on a multiprocessor; see `shaders/tried.md`.
const SHARED_BYTES: u32 = 24 << 10;

/// Number of rounds of results whose per-result operands are loaded ahead.
const STREAMED_ROUNDS: usize = 8;

/// Longest `k` that takes less time than the results.
const SHORT: usize = 32;

/// The division of a workgroup's tile among subgroups and matrices.
pub(super) struct CooperativeMatmulTile {
    /// Rows, columns and depth of a matrix.
    size: u32,
    /// Subgroup size, the largest if it varies.
    subgroup: u32,
    varying: bool,
    /// Rows and columns of the grid of subgroups.
    subgroups: (u32, u32),
    /// Rows and columns of the grid of matrices per subgroup.
    matrices: (u32, u32),
    /// Steps of `k` staged at a time.
    depth: u32,
    /// Number of stages in flight in registers.
    prefetch_stages: u32,
    /// Number of result matrices in a row that pass through workgroup memory at once.
    stage_matrices: u32,
    /// For the left and the right operand, true if four neighbours are four steps of `k`.
    along_depth: (bool, bool),
    /// The type of the accumulators.
    sum: Element,
}

impl CooperativeMatmulTile {
    /// The tile for a matmul on cooperative matrices; `None` if it is too narrow, its operands are not f16, or the
    /// target does not support them.
    pub fn new(
        kernel: &Bound<'_, Product>,
        target: &Target,
        wanted: Option<SubgroupProductTile>,
    ) -> Result<Option<Self>, EmitError> {
        let Some((size, sizes)) = target.matrices_of_subgroups().filter(|_| kernel.allows_f16_operands()) else {
            return Ok(None);
        };
        let (subgroup, varying) = (sizes.max, sizes.one().is_none());
        let Some(n) = kernel.n.as_const() else { return Ok(None) };
        // A symbolic depth is assumed to be long.
        let k = kernel.k.dense().and_then(Dim::as_const).unwrap_or(usize::MAX);
        let wide = |width: usize| width >= size as usize;
        if !wide(n) || !wide(k) {
            return Ok(None);
        }
        let narrow = u32::try_from(n.next_power_of_two()).unwrap_or(u32::MAX).max(size);
        let suited = SubgroupProductTile { rows: 8 * size, columns: (8 * size).min(narrow) };
        let SubgroupProductTile { rows, columns } = wanted.unwrap_or(suited);
        let part = |parameter, got: u32| match got / size {
            matrices @ (1 | 2 | 4 | 8) if got.is_multiple_of(size) => {
                Ok(if matrices == 1 { (1, 1) } else { (2, matrices / 2) })
            }
            _ => {
                let expected = format!("1, 2, 4 or 8 times {size}");
                Err(EmitError::Tuning { parameter, expected, got })
            }
        };
        let (m, n) = (part("rows", rows)?, part("columns", columns)?);
        let threads = m.0 * n.0 * subgroup;
        // Each invocation stages at least four elements of each operand.
        let least = size * (threads * 4).div_ceil(rows.min(columns) * size).next_power_of_two();
        let (subgroups, matrices) = ((m.0, n.0), (m.1, n.1));
        // Along a ragged depth, neighbours may be rows of another sample.
        let ragged = kernel.k.dense().is_none();
        let left_along_rows =
            kernel.m.dense().is_some() && (ragged || lies_along(kernel, kernel.a, (kernel.row(), kernel.depth)));
        let along_depth = (!left_along_rows, !ragged && lies_along(kernel, kernel.b, (kernel.depth, kernel.column())));
        let sum = if kernel.accumulates_f16() && target.half_sums { Element::Half } else { Element::Float };
        let with = |depth: u32, most: u32, stage_matrices: u32| {
            let steps = u32::try_from(k).unwrap_or(u32::MAX).div_ceil(depth);
            let suits = |stages: &u32| steps >= *stages && (steps.is_multiple_of(*stages) || steps > 8 * stages);
            let prefetch_stages = (2..=most).rev().find(suits).unwrap_or(1);
            Self {
                size,
                subgroup,
                varying,
                subgroups,
                matrices,
                depth,
                prefetch_stages,
                stage_matrices,
                along_depth,
                sum,
            }
        };
        let (deep, flat) = (with(2 * least, 2, 1), with(least, 4, n.1.min(2)));
        let statistics = kernel.stats.len() as u32;
        let tile = if deep.prefetch_stages > 1 && deep.bytes(statistics) <= SHARED_BYTES { deep } else { flat };
        let fits = threads <= target.invocations && tile.bytes(statistics) <= target.workgroup_bytes;
        match (fits, wanted) {
            (true, _) => Ok(Some(tile)),
            (false, Some(_)) => Ok(None),
            (false, None) => {
                Self::new(kernel, target, Some(SubgroupProductTile { rows: rows / 2, columns: columns / 2 }))
            }
        }
    }

    /// Workgroup memory in bytes of a matmul with this number of row statistics.
    fn bytes(&self, statistics: u32) -> u32 {
        let staged = |across: u32, along_depth: bool| match along_depth {
            true => across * (self.depth + PADDING) * 2,
            false => self.depth * (across + PADDING) * 2,
        };
        let partial = if statistics > 0 { 16 * self.rows() } else { 0 };
        let tiles = staged(self.rows(), self.along_depth.0) + staged(self.columns(), self.along_depth.1);
        tiles + 4 * self.sum.bytes() * self.stage_length() + partial + 4 * self.rows() * statistics
    }

    /// The rounds in which a subgroup's matrices pass through workgroup memory: row and column of the first matrix of
    /// each round.
    fn rounds(&self) -> Vec<Vec<u32>> {
        let columns = (0..self.matrices.1).step_by(self.stage_matrices as usize);
        (0..self.matrices.0).flat_map(|row| columns.clone().map(move |column| vec![row, column])).collect()
    }

    /// Groups of four results of a round per invocation.
    fn stage_items(&self) -> u32 {
        (self.size * self.size * self.stage_matrices / 4).div_ceil(self.subgroup)
    }

    /// True if the registers of the stages in flight can hold one f16 value per result of an invocation.
    fn holds_results(&self) -> bool {
        let staged = self.prefetch_stages * self.depth * (self.rows() + self.columns()) / (4 * self.threads());
        self.rounds().len() as u32 * self.stage_items() <= staged
    }

    fn stage_pitch(&self) -> u32 {
        (self.stage_matrices * self.size + 4) / 4
    }

    fn stage_length(&self) -> u32 {
        self.subgroups.0 * self.subgroups.1 * self.size * self.stage_pitch()
    }

    pub fn rows(&self) -> u32 {
        self.subgroups.0 * self.matrices.0 * self.size
    }

    pub fn columns(&self) -> u32 {
        self.subgroups.1 * self.matrices.1 * self.size
    }

    fn threads(&self) -> u32 {
        self.subgroups.0 * self.subgroups.1 * self.subgroup
    }

    /// The template variables of an operand's tile in workgroup memory: rows of groups of four neighbours, along `k` or
    /// across it.
    fn staged(&self, along_depth: bool, across: u32) -> Variable {
        let (outer, inner) = if along_depth { (across, self.depth) } else { (self.depth, across) };
        let step = self.threads() * 4 / inner;
        Variable::from_pairs([
            ("along_depth", Variable::from(along_depth)),
            ("outer", outer.into()),
            ("inner", inner.into()),
            ("pitch", ((inner + PADDING) / 4).into()),
            ("step", step.into()),
            ("items", (outer / step).into()),
        ])
    }
}

/// Valid numbers of cooperative matrices along an axis of a tile.
const MATRICES: [u32; 4] = [1, 2, 4, 8];

/// Tiles that suit the extents of a result; `None` for an unknown extent.
pub(super) fn tiles((m, n): (Option<usize>, Option<usize>), size: u32) -> Vec<SubgroupProductTile> {
    let across = |extent| MATRICES.map(|count| count * size).into_iter().filter(move |tile| suits(*tile, extent, 4));
    across(m).flat_map(|rows| across(n).map(move |columns| SubgroupProductTile { rows, columns })).collect()
}

/// The tile of many rows and a short `k`, which takes the time of its results: workgroups with fewer of them wait less.
pub(super) fn suited(kernel: &Bound<'_, Product>, target: &Target) -> Option<SubgroupProductTile> {
    let is_short = kernel.k.dense().and_then(Dim::as_const).is_some_and(|k| k <= SHORT);
    let is_wide = kernel.n.as_const().is_some_and(|n| n >= 8 * target.matrix as usize);
    let tile = SubgroupProductTile { rows: 4 * target.matrix, columns: 2 * target.matrix };
    let exists = || matches!(CooperativeMatmulTile::new(kernel, target, Some(tile)), Ok(Some(_)));
    (is_short && is_wide && exists()).then_some(tile)
}

/// Emits a matmul with cooperative matrices.
pub(super) fn emit(
    kernel: &Bound<'_, Product>,
    tile: &CooperativeMatmulTile,
    mut module: Module,
) -> Result<ParsedKernel, EmitError> {
    let mut parts = Parts::new(kernel, &mut module, [Element::Half; 2])?;
    let result = Four { coords: &result_coords(kernel), axis: kernel.column(), extent: &kernel.n };
    let outputs = &kernel.nest.outputs;
    let depth = kernel.k.dense().and_then(Dim::as_const);
    let ragged = depth.is_none_or(|k| !k.is_multiple_of((tile.depth * tile.prefetch_stages) as usize));
    let streams = !ragged && !tile.varying && tile.holds_results();
    let streamed = if streams { streamed(&mut module, &result, outputs)? } else { None };
    let (functions, ahead) = match tile.varying {
        // The number of results per invocation is unknown.
        true => (finish(&mut module, &result, kernel.sum(), outputs)?, Ahead::Nothing),
        false => finish_ahead(&mut module, &result, kernel.sum(), outputs, streamed.as_ref())?,
    };
    parts.functions += &functions;
    let rounds_ahead = match ahead {
        Ahead::Nothing => 0,
        Ahead::Shared => 1,
        Ahead::Streamed => STREAMED_ROUNDS.min(tile.rounds().len()),
    };
    let (body, grid, tile_lists) = place(kernel, (tile.rows(), tile.columns()), &mut module)?;
    parts.variables.extend([
        ("stats", parts.stats.into()),
        ("size", tile.size.into()),
        ("subgroup", tile.subgroup.into()),
        ("varying", tile.varying.into()),
        ("subgroup_rows", tile.subgroups.0.into()),
        ("subgroup_columns", tile.subgroups.1.into()),
        ("matrices_m", tile.matrices.0.into()),
        ("matrices_n", tile.matrices.1.into()),
        ("tile_m", tile.rows().into()),
        ("tile_n", tile.columns().into()),
        ("tile_k", tile.depth.into()),
        ("prefetch_stages", tile.prefetch_stages.into()),
        ("ragged_depth", ragged.into()),
        ("maybe_empty", depth.is_none().into()),
        ("left", tile.staged(tile.along_depth.0, tile.rows())),
        ("right", tile.staged(tile.along_depth.1, tile.columns())),
        ("rounds_ahead", rounds_ahead.into()),
        ("streamed", streamed.is_some().into()),
        ("sum", tile.sum.name().into()),
        ("rounds", tile.rounds().into()),
        ("stage_matrices", tile.stage_matrices.into()),
        ("stage_items", tile.stage_items().into()),
        ("stage_pitch", tile.stage_pitch().into()),
        ("stage_length", tile.stage_length().into()),
    ]);
    let main =
        Main { threads: tile.threads(), functions: parts.functions, body, variables: parts.variables, extension: None };
    TEMPLATE.render(module, main, grid, tile_lists)
}
