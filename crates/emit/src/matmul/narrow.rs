//! Matmuls of few rows with multiply-adds, whose time is that of reading the right operand.

use super::plain::MatmulTile;
use super::{FEW_TILES, Parts, lies_along, place, result_coords};
use crate::device_function::{Element, Four, finish};
use crate::module::Module;
use crate::template::{Main, Template, template};
use crate::{EmitError, ParsedKernel};
use rewire_graph::Dim;
use rewire_graph_rewrite::device::{NarrowProductTile, Target};
use rewire_graph_rewrite::schedule::{Bound, Product};

static TEMPLATE: Template = template!("matmul_narrow.wgsl");

/// Invocations of a workgroup.
const THREADS: u32 = 128;

/// Numbers of rows and of columns of a tile.
const ROWS: [u32; 4] = [4, 8, 16, 32];
const COLUMNS: [u32; 3] = [32, 16, 8];

/// Staged steps of `k`, largest first.
const DEPTHS: [u32; 3] = [256, 128, 64];

/// Largest number of groups of four that an invocation loads at a time.
const LOADS: u32 = 12;

/// Rows of a thread; a tile of fewer rows has a thread per result.
const ROWS_PER_THREAD: u32 = 4;

/// True for a matmul whose operands both have neighbours along `k`, and whose left elements are not expensive.
pub(super) fn supports(kernel: &Bound<'_, Product>) -> bool {
    let (row, depth, column) = (kernel.row(), kernel.depth, kernel.column());
    kernel.k.dense().is_some()
        && kernel.integers().is_none()
        && !lies_along(kernel, kernel.a, (row, depth))
        && lies_along(kernel, kernel.b, (depth, column))
        && !MatmulTile::is_long(kernel)
}

/// All tiles of the smallest and the largest number of columns.
pub(super) fn tiles(kernel: &Bound<'_, Product>, target: &Target) -> Vec<NarrowProductTile> {
    if !supports(kernel) || kernel.m.dense().and_then(Dim::as_const).is_some_and(|m| m > ROWS[3] as usize) {
        return vec![];
    }
    let sizes = ROWS.into_iter().flat_map(|rows| [COLUMNS[0], COLUMNS[2]].map(|columns| (rows, columns)));
    sizes.filter_map(|size| with_depth(kernel, target, size)).collect()
}

/// The tile for `m` rows and `n` columns of results; `None` for many rows. Tiles of the fewest rows have the fewest
/// columns: on an NVIDIA H100, wider ones take longer for any `n`. Others, which read all of the left operand, are as wide
/// as they can be with enough of them to occupy the GPU.
pub(super) fn suited(
    kernel: &Bound<'_, Product>,
    target: &Target,
    [entries, m, n]: [u64; 3],
) -> Option<NarrowProductTile> {
    let rows = ROWS.into_iter().find(|&rows| m <= u64::from(rows))?;
    if target.software || !supports(kernel) {
        return None;
    }
    let occupies =
        |columns: &u32| rows > ROWS[0] && entries.saturating_mul(n.div_ceil(u64::from(*columns))) >= FEW_TILES;
    let columns = COLUMNS.into_iter().find(occupies).unwrap_or(COLUMNS[2]);
    let mut widths = COLUMNS.into_iter().skip_while(|&width| width > columns);
    widths.find_map(|columns| with_depth(kernel, target, (rows, columns)))
}

fn with_depth(kernel: &Bound<'_, Product>, target: &Target, (rows, columns): (u32, u32)) -> Option<NarrowProductTile> {
    let tile = |depth: u32| NarrowProductTile { rows, columns, depth };
    let loads = |tile: &NarrowProductTile| (rows + columns) * tile.depth / 4 <= LOADS * THREADS;
    DEPTHS.map(tile).into_iter().find(|tile| loads(tile) && fits(kernel, target, *tile))
}

fn rows_per_thread(tile: NarrowProductTile) -> u32 {
    if tile.rows > ROWS[0] { ROWS_PER_THREAD } else { 1 }
}

fn fits(kernel: &Bound<'_, Product>, target: &Target, tile: NarrowProductTile) -> bool {
    let NarrowProductTile { rows, columns, depth } = tile;
    let statistics = kernel.stats.len() as u32;
    let partial = if statistics > 0 { 16 + 4 * statistics } else { 0 };
    let bytes = (rows + columns) * (depth + 4) * 4 + rows * columns * 4 + rows * partial;
    let threads = rows / rows_per_thread(tile) * columns;
    bytes <= target.workgroup_bytes && threads <= THREADS && THREADS <= target.invocations
}

/// Emits a matmul of few rows.
pub(super) fn emit(
    kernel: &Bound<'_, Product>,
    tile: NarrowProductTile,
    mut module: Module,
) -> Result<ParsedKernel, EmitError> {
    for (parameter, got, known) in
        [("rows", tile.rows, &ROWS[..]), ("columns", tile.columns, &COLUMNS), ("depth", tile.depth, &DEPTHS)]
    {
        if !known.contains(&got) {
            return Err(EmitError::Tuning { parameter, expected: format!("one of {known:?}"), got });
        }
    }
    if !fits(kernel, module.target, tile) {
        let expected = "fewer, so that the tile fits the target".to_owned();
        return Err(EmitError::Tuning { parameter: "columns", expected, got: tile.columns });
    }
    let mut parts = Parts::new(kernel, &mut module, [Element::Float; 2])?;
    let result = Four { coords: &result_coords(kernel), axis: kernel.column(), extent: &kernel.n };
    parts.functions += &finish(&mut module, &result, kernel.sum(), &kernel.nest.outputs)?;
    let (body, grid, tile_lists) = place(kernel, (tile.rows, tile.columns), &mut module)?;
    parts.variables.extend([
        ("stats", parts.stats.into()),
        ("tile_m", tile.rows.into()),
        ("tile_n", tile.columns.into()),
        ("tile_k", tile.depth.into()),
        ("rows_per_thread", rows_per_thread(tile).into()),
    ]);
    let main = Main { threads: THREADS, functions: parts.functions, body, variables: parts.variables, extension: None };
    TEMPLATE.render(module, main, grid, tile_lists)
}
