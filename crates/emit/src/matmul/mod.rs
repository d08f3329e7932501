//! Matmuls: on cooperative matrices if the target supports them and the operands are f16, else with multiply-adds.

mod narrow;
mod plain;
mod subgroups;
mod tensors;
mod workgroup;

use super::coords::Coords;
use super::device_function::{Combine, Element, Four, elements};
use super::expr::{Code, indented};
use super::map::split_row;
use super::module::Module;
use super::store::vector_accesses;
use super::value::WgslValue;
use super::{EmitError, ParsedKernel, Scheduled};
use crate::checked::cooperative;
use minijinja::Value as Variable;
use rewire_graph::Dim;
use rewire_graph::pointwise::ExprId;
use rewire_graph_rewrite::device::{GridFactor, Param, SubgroupProductTile, Target, Tile, TileList, Tuning};
use rewire_graph_rewrite::plan::Extent;
use rewire_graph_rewrite::schedule::{Bound, Product};

/// Row tiles that are processed together per column tile, so that operands are reread while they are cached.
const ROW_TILES: u32 = 16;

/// The tile of a matmul with cooperative matrices.
enum MatrixTile {
    /// With workgroup-scope matrices.
    Workgroup(workgroup::WorkgroupMatmulTile),
    /// With subgroup-scope matrices.
    Subgroups(subgroups::CooperativeMatmulTile),
}

impl MatrixTile {
    /// The tile of a matmul; `None` for multiply-adds.
    fn new(kernel: &Bound<'_, Product>, target: &Target, tuning: &Tuning) -> Result<Option<Self>, EmitError> {
        let of_workgroup = |tile| workgroup::WorkgroupMatmulTile::new(kernel, target, tile).map(Self::Workgroup);
        cooperative(tuning, || match tuning.tile {
            None => match of_workgroup(None) {
                Some(tile) => Ok(Some(tile)),
                None => Self::of_subgroups(kernel, target, None),
            },
            Some(Tile::WorkgroupProduct(tile)) => Ok(of_workgroup(Some(tile))),
            Some(Tile::SubgroupProduct(tile)) => Self::of_subgroups(kernel, target, Some(tile)),
            Some(_) => Ok(None),
        })
    }

    fn of_subgroups(
        kernel: &Bound<'_, Product>,
        target: &Target,
        tile: Option<SubgroupProductTile>,
    ) -> Result<Option<Self>, EmitError> {
        Ok(subgroups::CooperativeMatmulTile::new(kernel, target, tile)?.map(Self::Subgroups))
    }

    /// Rows and columns per workgroup.
    fn extents(&self) -> (u32, u32) {
        match self {
            Self::Workgroup(tile) => tile.shape(),
            Self::Subgroups(tile) => (tile.rows(), tile.columns()),
        }
    }
}

/// Largest number of rows for which threads split `k` instead of results.
const FEW_ROWS: u64 = 16;

/// Number of tiles below which a GPU is not occupied.
const FEW_TILES: u64 = 96;

impl Scheduled for Bound<'_, Product> {
    fn emit(&self, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let tile = match MatrixTile::new(self, module.target, tuning)? {
            Some(MatrixTile::Workgroup(tile)) if !tile.holds(&module) => {
                MatrixTile::of_subgroups(self, module.target, None)?
            }
            tile => tile,
        };
        match tile {
            Some(MatrixTile::Workgroup(tile)) => workgroup::emit(self, &tile, module),
            Some(MatrixTile::Subgroups(tile)) => subgroups::emit(self, &tile, module),
            None => match tuning.tile {
                Some(Tile::NarrowProduct(tile)) if narrow::supports(self) => narrow::emit(self, tile, module),
                Some(Tile::NarrowProduct(_)) => plain::emit(self, module, &Tuning { tile: None, ..*tuning }),
                _ => plain::emit(self, module, tuning),
            },
        }
    }

    fn takes(&self, tile: &Tile) -> bool {
        matches!(tile, Tile::Product(_) | Tile::NarrowProduct(_) | Tile::SubgroupProduct(_) | Tile::WorkgroupProduct(_))
    }

    fn tiles(&self, target: &Target, base: &Tuning) -> Vec<Tile> {
        let extents = (self.m.dense().and_then(Dim::as_const), self.n.as_const());
        if base.matrices == Some(true) {
            let of_workgroups = workgroup::tiles(self, target).into_iter().map(Tile::WorkgroupProduct);
            let of_subgroups = subgroups::tiles(extents, target.matrix).into_iter().map(Tile::SubgroupProduct);
            return of_workgroups.chain(of_subgroups).collect();
        }
        let narrow = narrow::tiles(self, target).into_iter().map(Tile::NarrowProduct);
        plain::tiles(extents).into_iter().map(Tile::Product).chain(narrow).collect()
    }

    /// Smaller tiles if there are too few tiles of the default size.
    fn suited(&self, base: &Tuning, target: &Target, size: &dyn Fn(&Dim) -> Option<u64>) -> Option<Tile> {
        let Extent::Dense(m) = &self.m else { return None };
        let product = |dims: &[Dim]| dims.iter().map(size).try_fold(1u64, |all, n| Some(all.saturating_mul(n?)));
        let (entries, m, n) = (product(&self.batch)?, size(m)?, size(&self.n)?);
        let cooperative = MatrixTile::new(self, target, base).ok()?;
        let sizes: Vec<_> = match cooperative.as_ref().map(MatrixTile::extents) {
            Some((rows, columns)) => {
                let narrowest = columns.min(2 * target.matrix);
                [1, 2, 4].map(|part| (rows / part, (columns / part).max(narrowest))).into()
            }
            None => {
                let largest = plain::MatmulTile::size(self, target);
                let is_smaller = |size: &(u32, u32)| !target.software && size.0 < largest.0 && size.1 <= largest.1;
                let smaller = plain::SIZES.into_iter().filter(is_smaller);
                std::iter::once(largest).chain(smaller).collect()
            }
        };
        let tiles = |(rows, columns): (u32, u32)| {
            entries.saturating_mul(m.div_ceil(rows.into())).saturating_mul(n.div_ceil(columns.into()))
        };
        let largest = sizes.first().copied();
        let mut smaller = sizes.into_iter().skip(1).filter(|size| u64::from(size.1) <= n.next_power_of_two());
        let occupied = |size: &(u32, u32)| tiles(*size) >= FEW_TILES;
        let least = smaller.clone().next_back();
        let occupies = largest.filter(occupied).or_else(|| smaller.find(occupied));
        let splits = base.split_sums == Some(true) && cooperative.is_none() && (m <= FEW_ROWS || occupies.is_none());
        if let (true, Some(k)) = (splits, self.k.dense().and_then(size))
            && let Some(split) = plain::split(self, target, (m, k))
        {
            return Some(Tile::Product(split));
        }
        if cooperative.is_none()
            && let Some(tile) = narrow::suited(self, target, [entries, m, n])
        {
            return Some(Tile::NarrowProduct(tile));
        }
        if cooperative.is_some()
            && occupies.is_some_and(|size| Some(size) == largest)
            && let Some(tile) = subgroups::suited(self, target)
        {
            return Some(Tile::SubgroupProduct(tile));
        }
        match (occupies.or(least), cooperative) {
            (Some((rows, columns)), Some(_)) if Some((rows, columns)) != largest => {
                Some(Tile::SubgroupProduct(SubgroupProductTile { rows, columns }))
            }
            (Some(size), None) if Some(size) != largest => {
                Some(Tile::Product(plain::MatmulTile::suited(self, target, size, None)))
            }
            (_, Some(MatrixTile::Workgroup(tile))) => {
                tile.in_less_time(self, target, [m, n]).map(Tile::WorkgroupProduct)
            }
            _ => None,
        }
    }

    fn is_cooperative(&self, target: &Target, tuning: &Tuning) -> bool {
        matches!(MatrixTile::new(self, target, tuning), Ok(Some(_)))
    }
}

/// Common variables of the templates: the kernel's device functions, and the layout of its operands.
struct Parts {
    functions: String,
    /// True if four neighbours of the left operand are four rows, not four steps of `k`.
    left_along_rows: bool,
    /// True if four neighbours of the right operand are four steps of `k`, not four columns.
    right_along_rows: bool,
    /// Statistics of a row of the left operand.
    stats: Vec<Variable>,
    variables: Vec<(&'static str, Variable)>,
}

impl Parts {
    fn new(kernel: &Bound<'_, Product>, module: &mut Module, [left, right]: [Element; 2]) -> Result<Self, EmitError> {
        let (row, column, depth) = (kernel.row(), kernel.column(), kernel.depth);
        let point = |first, second| point(kernel, first, second);
        let left_point = point((row, "m"), (depth, "k"));

        let mut functions = String::new();
        let mut stats = vec![];
        for (n, stat) in kernel.stats.iter().enumerate() {
            let combine = Combine(stat.op);
            let four = Four { coords: &point((row, "m"), (stat.axis, "k")), axis: stat.axis, extent: &stat.extent };
            let (values, more) = statistics(n, false);
            let name = format!("stat_{n}");
            let identity = combine.identity();
            let value = (stat.value, Element::Float, identity.as_str());
            functions += &elements(&name, module, &four, (&values, &more), value)?;
            stats.push(Variable::from_pairs([
                ("identity", identity.clone()),
                ("extent", module.dim(&stat.extent)),
                ("earlier", (0..n).map(|s| format!(", statistic_{s}[row]")).collect()),
                ("join", combine.join4("total", "value")),
                ("total", combine.total("total")),
            ]));
        }

        let left_along_rows = lies_along(kernel, kernel.a, (row, depth));
        let right_along_rows = lies_along(kernel, kernel.b, (depth, column));
        // Along a ragged depth, neighbours may be rows of another sample.
        let four = match (&kernel.m, &kernel.k) {
            (Extent::Dense(m), Extent::Ragged { .. }) => Four { coords: &left_point, axis: row, extent: m },
            (Extent::Dense(m), _) if left_along_rows => Four { coords: &left_point, axis: row, extent: m },
            (_, Extent::Dense(k)) => Four { coords: &left_point, axis: depth, extent: k },
            _ => return Err(EmitError::Form { reason: "a product of ragged rows has a ragged depth".to_owned() }),
        };
        let left_along_rows = four.axis == row;
        let (values, more) = statistics(kernel.stats.len(), left_along_rows);
        functions += &elements("left", module, &four, (&values, &more), (kernel.a, left, ""))?;
        let right_point = point((depth, "k"), (column, "n"));
        let four = match &kernel.k {
            Extent::Dense(k) if right_along_rows => Four { coords: &right_point, axis: depth, extent: k },
            _ => Four { coords: &right_point, axis: column, extent: &kernel.n },
        };
        let right_along_rows = four.axis == depth;
        functions += &elements("right", module, &four, (&[], ""), (kernel.b, right, ""))?;
        let batch_arguments: String = (0..row).map(|n| format!("c{n}, ")).collect();
        let left_more: String = (0..kernel.stats.len())
            .map(|s| match left_along_rows {
                true => format!(
                    ", vec4<f32>(statistic_{s}[row], statistic_{s}[row + 1], statistic_{s}[row + 2], statistic_{s}[row + 3])"
                ),
                false => format!(", statistic_{s}[row]"),
            })
            .collect();
        let variables = vec![
            // Loads that are in flight together when a statistic is computed.
            ("stat_loads", if module.target.software { 1 } else { 4 }.into()),
            ("batch", batch_arguments.into()),
            ("left_more", left_more.into()),
            ("n", module.dim(&kernel.n).into()),
            ("k", row_count(module, &kernel.k)?.into()),
        ];
        Ok(Self { functions, left_along_rows, right_along_rows, stats, variables })
    }
}

/// Coordinates of the batch entry and of two more axes.
fn point(kernel: &Bound<'_, Product>, first: (u8, &str), second: (u8, &str)) -> Coords {
    let batch = (0..kernel.row()).map(|n| format!("c{n}"));
    Coords::first(batch).with(first.0, first.1).with(second.0, second.1)
}

/// True if a tile is neither much wider than an extent, nor narrower than necessary.
pub(super) fn suits(tile: u32, extent: Option<usize>, narrow: u64) -> bool {
    let (tile, extent) = (u64::from(tile), extent.map_or(u64::MAX, |extent| extent as u64));
    tile < extent.max(2).saturating_mul(4) && tile * 2 >= extent.min(narrow)
}

/// True if an operand's neighbours in memory lie along the first of two axes instead of the second.
fn lies_along(kernel: &Bound<'_, Product>, factor: ExprId, (first, second): (u8, u8)) -> bool {
    let along = |axis| vector_accesses(&kernel.nest.body, axis, &[factor], &[]);
    along(first) > along(second)
}

/// The coordinates of a result.
fn result_coords(kernel: &Bound<'_, Product>) -> Coords {
    let batch = (0..kernel.row()).map(|n| format!("c{n}"));
    Coords::first(batch).with(kernel.row(), "m").with(kernel.column(), "n")
}

/// The first `count` statistics as values and as parameters of a device function.
fn statistics(count: usize, vector: bool) -> (Vec<(u8, WgslValue)>, String) {
    let name = |n| format!("statistic{n}");
    let value = |n| (n as u8, if vector { WgslValue::Vector(name(n)) } else { WgslValue::Uniform(name(n)) });
    let ty = if vector { "vec4<f32>" } else { "f32" };
    ((0..count).map(value).collect(), (0..count).map(|n| format!(", {}: {ty}", name(n))).collect())
}

/// Statements that compute the position of a workgroup's tile of `tile_m` rows and `tile_n` columns: `n0`, `m0`, `rows`
/// and the batch entry.
fn place(
    kernel: &Bound<'_, Product>,
    (tile_m, tile_n): (u32, u32),
    module: &mut Module,
) -> Result<(String, Vec<GridFactor>, Vec<TileList>), EmitError> {
    let mut code = Code::point(&Coords::default(), &[]);
    let tiles = |text: String, tile: u32| format!("({text} + {}) / {tile}", tile - 1);
    let n = module.dim(&kernel.n);
    let all = module.param(Param::Workgroups);
    code.line(&format!("let column_tiles = {};", tiles(n, tile_n)));
    code.line(&format!("let band = workgroup / (column_tiles * {ROW_TILES});"));
    code.line(&format!("let within = workgroup - band * column_tiles * {ROW_TILES};"));
    code.line(&format!("let height = min({all} / column_tiles - band * {ROW_TILES}, {ROW_TILES});"));
    code.line(&format!("let row_tile = band * {ROW_TILES} + within % height;"));
    code.line(&format!("let n0 = within / height * {tile_n};"));
    let columns = GridFactor::Tiles(vec![kernel.n.clone()], tile_n);
    let (grid, lists) = match &kernel.m {
        Extent::Dense(m) => {
            let rows = module.dim(m);
            code.line(&format!("let rows = {rows};"));
            code.line(&format!("let row_tiles = {};", tiles(rows, tile_m)));
            code.line("let entry = row_tile / row_tiles;");
            // Tiles that extend beyond the rows take longest, so they start first.
            code.line(&format!("let m0 = (row_tiles - 1 - (row_tile - entry * row_tiles)) * {tile_m};"));
            split_row(module, &mut code, &kernel.batch, "entry", "");
            let batch = GridFactor::Tiles(kernel.batch.clone(), 1);
            (vec![batch, GridFactor::Tiles(vec![m.clone()], tile_m), columns], vec![])
        }
        Extent::Ragged { .. } => {
            let samples = kernel.batch.first().cloned().ok_or(EmitError::Missing {
                what: "batch dimension of a ragged product",
                index: 0,
                count: 0,
            })?;
            let list = TileList { samples: vec![samples], rows: kernel.m.clone(), tile: tile_m, longest_first: false };
            place_in_list(module, &mut code, "row_tile", "m0")?;
            let rows = row_count(module, &kernel.m)?;
            code.line(&format!("let rows = {rows};"));
            (vec![GridFactor::TileList(0), columns], vec![list])
        }
    };
    Ok((indented(&code.take()), grid, lists))
}

/// Statements that read a tile of the first tile list: its sample `c0` and its first row.
pub(super) fn place_in_list(module: &mut Module, code: &mut Code, tile: &str, row: &str) -> Result<(), EmitError> {
    let sample = module.size_word(Param::TileBase(0), &format!("{tile} * 2"));
    let first = module.size_word(Param::TileBase(0), &format!("{tile} * 2 + 1"));
    code.line(&format!("let c0 = {sample};"));
    code.line(&format!("let {row} = {first};"));
    Ok(())
}

/// The number of rows of sample `c0`.
pub(super) fn row_count(module: &mut Module, rows: &Extent) -> Result<String, EmitError> {
    match rows {
        Extent::Dense(dim) => Ok(module.dim(dim)),
        Extent::Ragged { offsets } => {
            let end = module.load(*offsets, &["c0 + 1".to_owned()], None)?;
            let start = module.load(*offsets, &["c0".to_owned()], None)?;
            Ok(format!("{end} - {start}"))
        }
    }
}
