use super::expr::{Scope, indented};
use super::hook::{Combine, Four, elements, finish};
use super::map::split_row;
use super::module::Module;
use super::store::vector_accesses;
use super::template::{Main, render};
use super::value::Value;
use super::{EmitError, EmittedKernel, GridFactor, Param, Target, TileList, Tuning};
use crate::plan::{Matmul, RowRange};
use minijinja::Value as Variable;
use rewire_graph::Dim;

/// Sizes of a workgroup's tile and of a thread's part of it.
struct Tile {
    m: u32,
    n: u32,
    k: u32,
    rows: u32,
    groups: u32,
}

impl Tile {
    fn new(kernel: &Matmul, target: &Target, tuning: &Tuning) -> Result<Self, EmitError> {
        let few_rows = matches!(&kernel.m, RowRange::Dense(m) if m.as_const().is_some_and(|m| m <= 16));
        let n = tuning.columns.unwrap_or(match kernel.n.as_const() {
            Some(0..=4) => 4,
            Some(5..=16) => 16,
            Some(17..=32) => 32,
            _ => 64,
        });
        let m = tuning.rows.unwrap_or(if few_rows { 16 } else { 64 });
        let k = tuning.depth.unwrap_or(16);
        let rows = tuning.rows_per_thread.unwrap_or(if n <= 4 || m <= 16 { 1 } else { 4 });
        for (parameter, got) in [("rows", m), ("columns", n), ("depth", k)] {
            if got == 0 || got % 4 != 0 || got > 256 {
                let expected = "a multiple of four up to 256".to_owned();
                return Err(EmitError::Tuning { parameter, expected, got });
            }
        }
        if rows == 0 || rows > 16 || !m.is_multiple_of(rows) {
            let expected = format!("a divisor of {m} rows, up to 16");
            return Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got: rows });
        }
        let columns = n / 4;
        let fits =
            |groups: &u32| columns.is_multiple_of(*groups) && m / rows * (columns / groups) <= target.invocations;
        let groups = (1..=columns).find(fits).unwrap_or(columns);
        Ok(Self { m, n, k, rows, groups })
    }

    fn threads(&self) -> u32 {
        self.m / self.rows * (self.n / 4 / self.groups)
    }
}

/// Emits a matrix product.
pub(super) fn emit(kernel: &Matmul, mut module: Module, tuning: &Tuning) -> Result<EmittedKernel, EmitError> {
    let tile = Tile::new(kernel, module.target, tuning)?;
    let axis = kernel.batch.len();
    let batch: Vec<String> = (0..axis).map(|n| format!("c{n}")).collect();
    let point = |row: &str, column: &str| [batch.as_slice(), &[row.to_owned(), column.to_owned()]].concat();

    let mut hooks = String::new();
    let mut stats = vec![];
    for (n, stat) in kernel.stats.iter().enumerate() {
        let combine = Combine(stat.op);
        let four = Four { coords: &point("m", "k"), axis: axis + 1, extent: &stat.extent };
        let (values, more) = statistics(n, false);
        let name = format!("stat_{n}");
        hooks += &elements(&name, &mut module, &four, (values, &more), stat.value, combine.identity())?;
        stats.push(Variable::from_pairs([
            ("identity", combine.identity().to_owned()),
            ("extent", module.dim(&stat.extent)),
            ("earlier", (0..n).map(|s| format!(", statistic_{s}[row]")).collect()),
            ("join", combine.join("total", "value")),
            ("total", combine.total("total")),
        ]));
    }

    let along_m =
        vector_accesses(&module, axis, &[kernel.a], &[]) > vector_accesses(&module, axis + 1, &[kernel.a], &[]);
    let m_extent = match (&kernel.m, along_m) {
        (RowRange::Dense(m), _) => m.clone(),
        (RowRange::Ragged { .. }, _) => Dim::from(0),
    };
    let ragged = matches!(kernel.m, RowRange::Ragged { .. });
    let along_m = along_m && !ragged;
    let left = match along_m {
        true => Four { coords: &point("m", "k"), axis, extent: &m_extent },
        false => Four { coords: &point("m", "k"), axis: axis + 1, extent: &kernel.k },
    };
    let (values, more) = statistics(kernel.stats.len(), along_m);
    hooks += &elements("left", &mut module, &left, (values, &more), kernel.a, "0.0f")?;

    let along_k =
        vector_accesses(&module, axis, &[kernel.b], &[]) > vector_accesses(&module, axis + 1, &[kernel.b], &[]);
    let right = match along_k {
        true => Four { coords: &point("k", "n"), axis, extent: &kernel.k },
        false => Four { coords: &point("k", "n"), axis: axis + 1, extent: &kernel.n },
    };
    hooks += &elements("right", &mut module, &right, (vec![], ""), kernel.b, "0.0f")?;
    let result = Four { coords: &point("m", "n"), axis: axis + 1, extent: &kernel.n };
    hooks += &finish(&mut module, &result, &kernel.outputs)?;

    let (body, grid, tile_lists) = place(kernel, &tile, &mut module)?;
    let batch_arguments: String = batch.iter().map(|c| format!("{c}, ")).collect();
    let left_more: String = (0..kernel.stats.len())
        .map(|s| match along_m {
            true => format!(", vec4<f32>(statistic_{s}[row], statistic_{s}[row + 1], statistic_{s}[row + 2], statistic_{s}[row + 3])"),
            false => format!(", statistic_{s}[row]"),
        })
        .collect();
    let variables = vec![
        ("tile_m", tile.m.into()),
        ("tile_n", tile.n.into()),
        ("tile_k", tile.k.into()),
        ("rows_per_thread", tile.rows.into()),
        ("groups_per_thread", tile.groups.into()),
        ("stats", Variable::from(stats)),
        ("batch", batch_arguments.into()),
        ("left_along_rows", along_m.into()),
        ("right_along_rows", along_k.into()),
        ("left_more", left_more.into()),
        ("n", module.dim(&kernel.n).into()),
        ("k", module.dim(&kernel.k).into()),
    ];
    let main = Main { threads: tile.threads(), hooks, body, variables };
    let source = include_str!("../../../../shaders/matmul.wgsl");
    render("matmul.wgsl", source, module, main, grid, tile_lists)
}

/// The first statistics as a hook's values, and as its parameters.
fn statistics(count: usize, vector: bool) -> (Vec<Value>, String) {
    let name = |n| format!("statistic{n}");
    let value = |n| if vector { Value::Vector(name(n)) } else { Value::Uniform(name(n)) };
    let ty = if vector { "vec4<f32>" } else { "f32" };
    ((0..count).map(value).collect(), (0..count).map(|n| format!(", {}: {ty}", name(n))).collect())
}

/// Statements that find a workgroup's tile: `n0`, `m0`, `rows` and the batch entry.
fn place(
    kernel: &Matmul,
    tile: &Tile,
    module: &mut Module,
) -> Result<(String, Vec<GridFactor>, Vec<TileList>), EmitError> {
    let mut scope = Scope::point(&[], vec![]);
    let tiles = |text: String, tile: u32| format!("({text} + {}) / {tile}", tile - 1);
    let n = module.dim(&kernel.n);
    scope.line(&format!("let column_tiles = {};", tiles(n, tile.n)));
    scope.line("let row_tile = workgroup / column_tiles;");
    scope.line(&format!("let n0 = (workgroup - row_tile * column_tiles) * {};", tile.n));
    let columns = GridFactor::Tiles(vec![kernel.n.clone()], tile.n);
    let (grid, lists) = match &kernel.m {
        RowRange::Dense(m) => {
            let rows = module.dim(m);
            scope.line(&format!("let rows = {rows};"));
            scope.line(&format!("let row_tiles = {};", tiles(rows, tile.m)));
            scope.line("let entry = row_tile / row_tiles;");
            scope.line(&format!("let m0 = (row_tile - entry * row_tiles) * {};", tile.m));
            split_row(module, &mut scope, &kernel.batch, "entry");
            let batch = GridFactor::Tiles(kernel.batch.clone(), 1);
            (vec![batch, GridFactor::Tiles(vec![m.clone()], tile.m), columns], vec![])
        }
        RowRange::Ragged { .. } => {
            let samples = kernel.batch.first().cloned().ok_or(EmitError::Missing {
                what: "batch dimension of a ragged product",
                index: 0,
                count: 0,
            })?;
            let list = TileList { samples, rows: kernel.m.clone(), tile: tile.m, longest_first: false };
            place_in_list(module, &mut scope, "row_tile", "m0")?;
            let rows = row_count(module, &kernel.m)?;
            scope.line(&format!("let rows = {rows};"));
            (vec![GridFactor::TileList(0), columns], vec![list])
        }
    };
    Ok((indented(&scope.take()), grid, lists))
}

/// Statements that read a tile of the first tile list: its sample `c0` and its first row.
pub(super) fn place_in_list(module: &mut Module, scope: &mut Scope, tile: &str, row: &str) -> Result<(), EmitError> {
    let sample = module.size_word(Param::TileBase(0), &format!("{tile} * 2"));
    let first = module.size_word(Param::TileBase(0), &format!("{tile} * 2 + 1"));
    scope.line(&format!("let c0 = {sample};"));
    scope.line(&format!("let {row} = {first};"));
    Ok(())
}

/// The number of rows of sample `c0`.
pub(super) fn row_count(module: &mut Module, rows: &RowRange) -> Result<String, EmitError> {
    match rows {
        RowRange::Dense(dim) => Ok(module.dim(dim)),
        RowRange::Ragged { offsets } => {
            let end = module.load(*offsets, &["c0 + 1".to_owned()], None)?;
            let start = module.load(*offsets, &["c0".to_owned()], None)?;
            Ok(format!("{end} - {start}"))
        }
    }
}
