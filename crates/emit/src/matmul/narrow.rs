//! Matmuls of few rows with multiply-adds, whose time is that of reading the right operand.

use super::plain::MatmulTile;
use super::{FEW_TILES, Parts, lies_along, place, result_coords};
use crate::device_function::{Element, Four, finish};
use crate::module::Module;
use crate::template::{Main, Template, template};
use crate::{EmitError, ParsedKernel};
use rewire_graph::Dim;
use rewire_graph::pointwise::Expr;
use rewire_graph_rewrite::device::{NarrowProductTile, Target};
use rewire_graph_rewrite::schedule::{Bound, Product};

static TEMPLATE: Template = template!("matmul_narrow.wgsl");

/// Invocations of a workgroup.
const THREADS: u32 = 128;

/// Numbers of rows and of columns of a tile.
const ROWS: [u32; 5] = [1, 4, 8, 16, 32];
const COLUMNS: [u32; 3] = [32, 16, 8];

/// Staged steps of `k`, largest first.
const DEPTHS: [u32; 3] = [256, 128, 64];

/// Largest number of groups of four that an invocation loads at a time.
const LOADS: u32 = 12;

/// Rows and columns of a thread, from the most; a tile of up to [`FEW`] rows has a thread per result.
const SHARES: [(u32, u32); 3] = [(4, 2), (4, 1), (2, 1)];
const FEW: u32 = 4;

/// Groups of four steps of `k` whose operands a thread loads before their products, if it has one result. More take
/// registers, so that fewer workgroups run at a time.
const GROUPS: u32 = 4;

/// True for a matmul whose operands both have neighbours along `k`, and whose left elements are not expensive.
pub(super) fn supports(kernel: &Bound<'_, Product>) -> bool {
    let (row, depth, column) = (kernel.row(), kernel.depth, kernel.column());
    kernel.k.dense().is_some()
        && !kernel.accumulates_integers()
        && !lies_along(kernel, kernel.a, (row, depth))
        && lies_along(kernel, kernel.b, (depth, column))
        && !MatmulTile::is_long(kernel)
}

/// All tiles of the smallest and the largest number of columns.
pub(super) fn tiles(kernel: &Bound<'_, Product>, target: &Target) -> Vec<NarrowProductTile> {
    if !supports(kernel) || kernel.m.dense().and_then(Dim::as_const).is_some_and(|m| m > ROWS[4] as usize) {
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
    let occupies = |columns: &u32| rows > FEW && entries.saturating_mul(n.div_ceil(u64::from(*columns))) >= FEW_TILES;
    let columns = COLUMNS.into_iter().find(occupies).unwrap_or(COLUMNS[2]);
    let mut widths = COLUMNS.into_iter().skip_while(|&width| width > columns);
    widths.find_map(|columns| with_depth(kernel, target, (rows, columns)))
}

fn with_depth(kernel: &Bound<'_, Product>, target: &Target, (rows, columns): (u32, u32)) -> Option<NarrowProductTile> {
    let tile = |depth: u32| NarrowProductTile { rows, columns, depth };
    let loads = |tile: &NarrowProductTile| (rows + columns) * tile.depth / 4 <= LOADS * THREADS;
    DEPTHS.map(tile).into_iter().find(|tile| loads(tile) && fits(kernel, target, *tile))
}

/// Rows and columns of a thread: as many as leave no subgroup of the workgroup without work.
fn share(tile: NarrowProductTile) -> (u32, u32) {
    let busy = |&(rows, columns): &(u32, u32)| tile.rows * tile.columns >= rows * columns * THREADS;
    if tile.rows > FEW { SHARES.into_iter().find(busy).unwrap_or((1, 1)) } else { (1, 1) }
}

fn fits(kernel: &Bound<'_, Product>, target: &Target, tile: NarrowProductTile) -> bool {
    let NarrowProductTile { rows, columns, depth } = tile;
    let statistics = kernel.stats.len() as u32;
    let partial = if statistics > 0 { 16 + 4 * statistics } else { 0 };
    let bytes = (rows + columns) * (depth + 4) * 4 + rows * columns * 4 + rows * partial;
    let share = share(tile);
    let threads = rows / share.0 * (columns / share.1);
    bytes <= target.workgroup_bytes && threads <= THREADS && THREADS <= target.invocations
}

/// The type of four unconverted elements of the right operand, and the function that converts them, if they are loaded and
/// exist together. They are then converted when they are staged: before that, loads would have to be waited for.
fn stored(kernel: &Bound<'_, Product>, module: &Module) -> Option<(&'static str, String)> {
    let Expr::Load { operand, .. } = kernel.nest.body.dag.expr(kernel.b) else { return None };
    let depth = kernel.k.dense().and_then(Dim::as_const).filter(|depth| depth.is_multiple_of(4));
    depth.and_then(|_| module.stored_four(*operand))
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
    let stored = stored(kernel, &module);
    let right = stored.as_ref().map_or(Element::Float, |(ty, _)| Element::Stored(ty));
    let mut parts = Parts::new(kernel, &mut module, [Element::Float, right])?;
    let result = Four { coords: &result_coords(kernel), axis: kernel.column(), extent: &kernel.n };
    parts.functions += &finish(&mut module, &result, kernel.sum(), &kernel.nest.outputs)?;
    let (body, grid, tile_lists) = place(kernel, (tile.rows, tile.columns), &mut module)?;
    let (rows, columns) = share(tile);
    let depth = kernel.k.dense().and_then(Dim::as_const);
    parts.variables.extend([
        ("stats", parts.stats.into()),
        ("tile_m", tile.rows.into()),
        ("tile_n", tile.columns.into()),
        ("tile_k", tile.depth.into()),
        ("rows_per_thread", rows.into()),
        ("columns_per_thread", columns.into()),
        ("together", (GROUPS / (rows * columns)).max(1).into()),
        ("ragged_depth", depth.is_none_or(|depth| !depth.is_multiple_of(tile.depth as usize)).into()),
        ("right_type", stored.as_ref().map_or("vec4<f32>", |(ty, _)| ty).into()),
        ("right_values", stored.map_or(String::new(), |(_, values)| values).into()),
    ]);
    let main = Main { threads: THREADS, functions: parts.functions, body, variables: parts.variables, extension: None };
    TEMPLATE.render(module, main, grid, tile_lists)
}
