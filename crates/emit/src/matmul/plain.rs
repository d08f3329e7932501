use super::{Parts, lies_along, place, result_coords, suits};
use crate::checked::tile_of;
use crate::device_function::{Element, Four, finish};
use crate::module::Module;
use crate::registers;
use crate::template::{Main, Template, template};
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph_rewrite::cost::operations;
use rewire_graph_rewrite::device::{ProductTile, Target, Tile, Tuning};
use rewire_graph_rewrite::plan::Extent;
use rewire_graph_rewrite::schedule::{Bound, Product};

static TEMPLATE: Template = template!("matmul.wgsl");

/// Sizes of a workgroup's tile and of a thread's share of it.
pub(super) struct MatmulTile {
    m: u32,
    n: u32,
    k: u32,
    rows: u32,
    groups: u32,
    /// Number of parts of `k` that threads sum separately.
    parts: u32,
}

/// Tiles of matmuls, rows by columns, largest first.
pub(super) const SIZES: [(u32, u32); 4] = [(128, 128), (64, 64), (32, 32), (16, 32)];
/// Largest number of results of a small tile. Small tiles stage more of `k` at once, since their few threads wait for
/// memory together.
const SMALL: u32 = 64 * 32;
/// Workgroup memory of a small tile in bytes, and its limit per subgroup on GPUs with few registers: eight subgroups then
/// run concurrently in 32 KiB.
const SMALL_BYTES: u32 = 16 << 10;
const SUBGROUP_BYTES: u32 = 4 << 10;
/// Largest number of threads. Compilers allot fewer registers to each thread of a larger workgroup.
const MOST_THREADS: u32 = 512;
/// Subgroup sizes of GPUs for that limit.
const SUBGROUPS: (u32, u32) = (64, 128);

impl MatmulTile {
    /// Default rows and columns of a tile for a matmul and a target.
    pub fn size(kernel: &Bound<'_, Product>, target: &Target) -> (u32, u32) {
        let few_rows = matches!(&kernel.m, Extent::Dense(m) if m.as_const().is_some_and(|m| m <= 16));
        let rows = match (few_rows, target.software) {
            (true, _) => 16,
            (_, true) => 32,
            _ => 64,
        };
        let n = kernel.n.as_const();
        match n {
            Some(0..=4) => (rows, 4),
            Some(5..=16) => (rows, 16),
            Some(17..=32) => (rows, 32),
            // Software drivers compile code with many loads and stores slowly.
            _ if target.software => (rows, 32),
            _ if few_rows => (16, 64),
            _ => {
                let fetch = Fetch::new(kernel);
                let holds = |size, rows, threads| fetch.registers(size, rows, threads) <= target.register_budget();
                let wasteful = n.is_some_and(|n| n < 1024 && n.next_multiple_of(128) != n.next_multiple_of(64));
                let memory = bytes(kernel, (128, 128, 16)) <= target.workgroup_bytes;
                let is_large = memory && !wasteful && target.invocations >= 256 && holds((128, 128, 16), 16, 256);
                let is_middle = holds((64, 64, 16), 2, MOST_THREADS);
                if is_large { (128, 128) } else { (if is_middle { 64 } else { 32 }, 64) }
            }
        }
    }

    /// The tile with these rows and columns, and with `depth` or the default depth.
    pub fn suited(
        kernel: &Bound<'_, Product>,
        target: &Target,
        (rows, columns): (u32, u32),
        depth: Option<u32>,
    ) -> ProductTile {
        let is_small = rows * columns <= SMALL && !target.software;
        let most = match (rows, columns) {
            _ if target.software => 1,
            (..=16, _) | (_, ..=4) => 1,
            (..=32, _) => 2,
            (_, ..64) => 4,
            (128.., 128..) => 16,
            _ => 8,
        };
        let threads = |each: u32| (rows / each).max(1) * (columns / 4);
        let fetch = Fetch::new(kernel);
        let holds = |depth: u32, each: u32| {
            let needed = fetch.registers((rows, columns, depth), each, threads(each));
            target.software || needed <= target.register_budget()
        };
        let subgroup = target.subgroup_size.max.clamp(SUBGROUPS.0, SUBGROUPS.1);
        let shares_memory = |depth: u32, each: u32| {
            let most = if registers::has_few(target) { threads(each) * SUBGROUP_BYTES / subgroup } else { SMALL_BYTES };
            bytes(kernel, (rows, columns, depth)) <= most.min(SMALL_BYTES)
        };
        let fits = |depth: &u32| is_small && shares_memory(*depth, most) && holds(*depth, most);
        let depth = depth.unwrap_or_else(|| [64, 32].into_iter().find(fits).unwrap_or(16));
        let shares = std::iter::successors(Some(most), |each| (*each > 1).then_some(each / 2));
        let most_threads = target.invocations.min(MOST_THREADS);
        let possible = shares.filter(|each| rows.is_multiple_of(*each) && threads(*each) <= most_threads);
        let fewer = |each: &u32| holds(depth, *each) && (!is_small || depth > 16 || shares_memory(depth, *each));
        let rows_per_thread = possible.clone().find(fewer).or_else(|| possible.last()).unwrap_or(most);
        ProductTile { rows, columns, depth, rows_per_thread, parts: 1 }
    }

    /// True if several copies of the left operand's expression compile slowly.
    pub fn is_long(kernel: &Bound<'_, Product>) -> bool {
        operations(&kernel.nest.body.dag, kernel.a) > LONG
    }

    /// Checks the sizes of a tile.
    fn new(tile: ProductTile, target: &Target) -> Result<Self, EmitError> {
        let ProductTile { rows: m, columns: n, depth: k, rows_per_thread: rows, parts } = tile;
        for (parameter, got) in [("rows", m), ("columns", n), ("depth", k)] {
            if got == 0 || !got.is_multiple_of(4) || got > 256 {
                let expected = "a multiple of four up to 256".to_owned();
                return Err(EmitError::Tuning { parameter, expected, got });
            }
        }
        if rows == 0 || rows > 16 || !m.is_multiple_of(rows) {
            let expected = format!("a divisor of {m} rows, up to 16");
            return Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got: rows });
        }
        if !matches!(parts, 1 | 2 | 4 | 8) || !(k / 4).is_multiple_of(parts) {
            let expected = format!("1, 2, 4 or 8, a divisor of the {} groups of a stage", k / 4);
            return Err(EmitError::Tuning { parameter: "parts", expected, got: parts });
        }
        let columns = n / 4;
        let fits =
            |groups: &u32| columns.is_multiple_of(*groups) && m / rows * (columns / groups) <= target.invocations;
        let groups = (1..=columns).find(fits).unwrap_or(columns);
        Ok(Self { m, n, k, rows, groups, parts })
    }

    fn threads(&self) -> u32 {
        self.parts * (self.m / self.rows) * (self.n / 4 / self.groups)
    }
}

/// How a thread loads the operands.
struct Fetch {
    /// True if it loads blocks of four by four elements, for the left and the right operand.
    blocks: [bool; 2],
    /// Registers for the operands' expressions.
    expressions: u32,
}

impl Fetch {
    fn new(kernel: &Bound<'_, Product>) -> Self {
        let (row, depth, column) = (kernel.row(), kernel.depth, kernel.column());
        let blocks = [lies_along(kernel, kernel.a, (row, depth)), lies_along(kernel, kernel.b, (depth, column))];
        let dag = &kernel.nest.body.dag;
        let expressions = operations(dag, kernel.a).saturating_add(operations(dag, kernel.b));
        Self { blocks, expressions: expressions.min(MOST_OF_EXPRESSIONS) as u32 }
    }

    /// Registers per invocation: accumulators, operands of a step, elements in flight, and indices.
    fn registers(&self, (m, n, k): (u32, u32, u32), rows: u32, threads: u32) -> u32 {
        let groups = |elements: u32, in_blocks: bool| {
            if in_blocks { 4 * (elements / 16).div_ceil(threads) } else { (elements / 4).div_ceil(threads) }
        };
        let on_their_way = groups(m * k, self.blocks[0]) + groups(k * n, self.blocks[1]);
        4 * (2 * rows + 1 + on_their_way) + self.expressions + PLACES
    }
}

/// Registers for indices and loop counters, and the most for operands' expressions.
const PLACES: u32 = 16;
const MOST_OF_EXPRESSIONS: u64 = 16;

/// A split-k tile for few rows; `None` if `k` is too short.
pub(super) fn split(kernel: &Bound<'_, Product>, target: &Target, (m, k): (u64, u64)) -> Option<ProductTile> {
    let (rows, columns, parts) = if m <= 4 { (4, 32, 8) } else { (16, 16, 4) };
    let fits = |depth: &u32| {
        let sums = 4 * (parts - 1) * rows * columns;
        u64::from(*depth) <= k && bytes(kernel, (rows, columns, *depth)) + sums <= target.workgroup_bytes
    };
    let depth = [128, 64].into_iter().find(fits)?;
    Some(ProductTile { parts, ..MatmulTile::suited(kernel, target, (rows, columns), Some(depth)) })
}

/// Cost of an operand's expression from which several copies of it compile slowly.
const LONG: u64 = 32;

/// Tiles of matmuls with multiply-adds: rows, columns, depth, and rows per thread.
const TILES: [[u32; 4]; 34] = [
    [128, 128, 16, 16],
    [32, 32, 64, 2],
    [16, 32, 64, 1],
    [16, 32, 64, 2],
    [64, 64, 16, 8],
    [64, 64, 16, 4],
    [64, 64, 32, 8],
    [128, 64, 16, 8],
    [64, 128, 16, 8],
    [128, 128, 16, 8],
    [32, 128, 16, 4],
    [32, 64, 16, 4],
    [32, 32, 16, 4],
    [32, 32, 32, 2],
    // Few rows.
    [16, 128, 16, 2],
    [16, 64, 16, 1],
    [16, 32, 16, 1],
    [16, 32, 32, 1],
    [4, 32, 64, 1],
    [4, 64, 32, 1],
    [4, 128, 16, 1],
    [4, 256, 16, 1],
    // Few columns.
    [64, 32, 16, 4],
    [128, 32, 16, 4],
    [64, 16, 16, 4],
    [64, 16, 32, 1],
    [256, 16, 16, 4],
    [16, 16, 64, 1],
    [64, 4, 16, 1],
    [128, 4, 16, 1],
    [256, 4, 16, 1],
    [64, 4, 32, 1],
    [64, 4, 64, 1],
    [16, 4, 64, 1],
];

/// Tiles that suit the extents of a result; `None` for an unknown extent.
pub(super) fn tiles((m, n): (Option<usize>, Option<usize>)) -> Vec<ProductTile> {
    let tiles = TILES.into_iter().filter(|[rows, columns, ..]| suits(*rows, m, 4) && suits(*columns, n, 64));
    let tile = |[rows, columns, depth, rows_per_thread]: [u32; 4]| ProductTile {
        rows,
        columns,
        depth,
        rows_per_thread,
        parts: 1,
    };
    tiles.map(tile).collect()
}

/// Workgroup memory in bytes of a tile with these rows, columns and steps of `k`.
fn bytes(kernel: &Bound<'_, Product>, (m, n, k): (u32, u32, u32)) -> u32 {
    let statistics = kernel.stats.len() as u32;
    let each = if statistics == 0 { 0 } else { 16 + 4 * statistics };
    (m.saturating_add(n)).saturating_mul(4 * k).saturating_add(m.saturating_mul(each))
}

/// Emits a matmul with multiply-adds.
pub(super) fn emit(
    kernel: &Bound<'_, Product>,
    mut module: Module,
    tuning: &Tuning,
) -> Result<ParsedKernel, EmitError> {
    let wanted = tile_of(tuning, "product", |tile| if let Tile::Product(tile) = tile { Some(tile) } else { None })?;
    let suited = || MatmulTile::suited(kernel, module.target, MatmulTile::size(kernel, module.target), None);
    let tile = MatmulTile::new(wanted.unwrap_or_else(suited), module.target)?;
    let integers = kernel.accumulates_integers();
    let mut parts = Parts::new(kernel, &mut module, [if integers { Element::Word } else { Element::Float }; 2])?;
    let is_long = !parts.left_along_rows && MatmulTile::is_long(kernel);
    let result = Four { coords: &result_coords(kernel), axis: kernel.column(), extent: &kernel.n };
    parts.functions += &finish(&mut module, &result, kernel.sum(), &kernel.nest.outputs)?;
    let (body, grid, tile_lists) = place(kernel, (tile.m, tile.n), &mut module)?;
    parts.variables.extend(element_types(integers));
    parts.variables.extend([
        ("stats", parts.stats.into()),
        ("tile_m", tile.m.into()),
        ("tile_n", tile.n.into()),
        ("tile_k", tile.k.into()),
        ("rows_per_thread", tile.rows.into()),
        ("groups_per_thread", tile.groups.into()),
        ("parts", tile.parts.into()),
        // Without loading ahead a shader is half as long, which software drivers compile faster.
        ("ahead", (!module.target.software && !is_long && registers::load_ahead(module.target)).into()),
        ("rolled", registers::has_few(module.target).into()),
        ("left_in_turn", is_long.into()),
        ("in_turn", (registers::has_few(module.target) && (parts.left_along_rows || parts.right_along_rows)).into()),
        ("left_along_rows", parts.left_along_rows.into()),
        ("right_along_rows", parts.right_along_rows.into()),
    ]);
    let main =
        Main { threads: tile.threads(), functions: parts.functions, body, variables: parts.variables, extension: None };
    TEMPLATE.render(module, main, grid, tile_lists)
}

/// The types of elements and sums in the template.
fn element_types(integers: bool) -> [(&'static str, Variable); 5] {
    let [vector, zero, sum, zero_sum] = match integers {
        true => ["vec4<u32>", "vec4<u32>()", "vec4<i32>", "vec4<i32>()"],
        false => ["vec4<f32>", "vec4<f32>(0.0f)", "vec4<f32>", "vec4<f32>(0.0f)"],
    };
    let texts = [("vector", vector), ("zero", zero), ("sum", sum), ("zero_sum", zero_sum)];
    let [a, b, c, d] = texts.map(|(name, text)| (name, Variable::from(text)));
    [("integers", integers.into()), a, b, c, d]
}
