//! Segmented reductions: sums by sample and by index.

use super::coords::Coords;
use super::device_function::{Columns, Combine, float};
use super::expr::{Code, indented};
use super::map::{groups_of_row, split_row};
use super::matmul::row_count;
use super::module::Module;
use super::reduce::combine;
use super::store::{looks_up, vector_accesses};
use super::template::{Main, Template, template};
use super::value::WgslValue;
use super::{EmitError, ParsedKernel, Scheduled};
use crate::candidates::{is_for_many, per_thread};
use crate::checked::{of_threads, suited_threads, tile_of};
use minijinja::Value as Variable;
use rewire_graph::Dim;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph_rewrite::device::{GridFactor, Target, ThreadTile, Tile, Tuning};
use rewire_graph_rewrite::plan::ReduceOp;
use rewire_graph_rewrite::schedule::{Bound, SegmentedReduce};

static TEMPLATE: Template = template!("segmented_reduce.wgsl");

/// Least number of threads that share the rows of a result: few, since samples may be short.
const PARTS: u32 = 4;
/// Largest number of threads that share the rows of a result, if there are few results.
const MOST_PARTS: u32 = 32;
/// Threads that keep the memory of a large GPU busy, at four columns a thread.
const BUSY: usize = 1 << 17;
/// Rows that a thread loads at once.
const ROWS: u32 = 2;
/// Rows that a thread loads at once if they are looked up by ids.
const NAMED_ROWS: u32 = 8;
/// Number of result elements that occupy a large GPU even with fewer rows at once and twice as many columns per thread.
const MANY_ELEMENTS: u64 = 1 << 19;
/// Largest number of result rows per workgroup in sums by index.
const OWNERS: u32 = 64;
/// Largest number of column groups per workgroup in sums by index.
const COLUMNS: u32 = 8;
/// Rows whose indices a workgroup looks up at a time.
const CHUNK: u32 = 1024;

/// True if rows are looked up by ids.
fn has_named_rows(kernel: &Bound<'_, SegmentedReduce>) -> bool {
    let roots: Vec<ExprId> = kernel.sums.iter().map(|sum| sum.value).collect();
    kernel.index.is_none() && looks_up(&kernel.nest.body, &roots)
}

impl Scheduled for Bound<'_, SegmentedReduce> {
    /// Emits sums over rows.
    fn emit(&self, mut module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let ThreadTile { threads, groups_per_thread, rows_per_thread } = tile(self, module.target, tuning)?;
        for sum in &self.sums {
            float(&module, "a sum over rows", sum.value)?;
        }
        let points = Points::new(self, &module, groups_per_thread)?;
        let shares = Shares::new(self, &points, threads);
        let at_once = if self.index.is_some() { 1 } else { rows_per_thread };
        let mut main = Code::point(&Coords::default(), &[]);
        let grid = match self.index {
            Some(_) => points.place_by_row(&mut module, &mut main, &shares),
            None => points.place(&mut module, &mut main, &shares),
        };
        let coords = points.split(&mut module, &mut main).with(self.row, "n");
        let codes = points.codes(&mut module, &mut main, &coords);
        let rows = row_count(&mut module, &self.rows)?;
        let mut totals = String::new();
        for group in 0..codes.len() {
            for (n, sum) in self.sums.iter().enumerate() {
                let identity = Combine(sum.op).identity();
                totals += &format!("var {} = {}({identity});\n", total(n, group), points.columns.ty());
            }
        }
        let (common, element) = elements(self, &points, &mut module, (&coords, &codes), (at_once, shares.parts))?;
        let (index, looked_up) = match self.index {
            Some(index) => look_up(&mut module, index, self.row)?,
            None => (String::new(), String::new()),
        };
        let results = results(self, &points, &shares, &mut module, codes)?;
        let variables = vec![
            ("by_index", self.index.is_some().into()),
            ("lanes", points.columns.lanes.into()),
            ("type", points.columns.ty().into()),
            ("parts", shares.parts.into()),
            ("places", shares.places().into()),
            ("owners", shares.owners.into()),
            ("chunk", CHUNK.into()),
            ("combinations", combinations(self, &points)),
            ("rows", rows.into()),
            ("step", (shares.parts * at_once).into()),
            ("totals", indented(&totals).into()),
            ("common", nested(&common, 2).trim_end().into()),
            ("index", nested(&(index + &looked_up), 3).trim_end().into()),
            ("element", nested(&element, if self.index.is_some() { 4 } else { 3 }).trim_end().into()),
            ("results", indented(&results).into()),
        ];
        let main = Main { threads, functions: String::new(), body: indented(&main.take()), variables, extension: None };
        TEMPLATE.render(module, main, grid, vec![])
    }

    fn takes(&self, tile: &Tile) -> bool {
        matches!(tile, Tile::SegmentedReduce(_))
    }

    /// All of them sum in the same order.
    fn tiles(&self, _: &Target, _: &Tuning) -> Vec<Tile> {
        let tiles = match (self.index, has_named_rows(self)) {
            (Some(_), _) => vec![],
            (None, true) => per_thread(&[1, 2, 4], &[2, 4, 8]),
            (None, false) => per_thread(&[1], &[1, 2, 4]),
        };
        tiles.into_iter().map(Tile::SegmentedReduce).collect()
    }

    /// If there are many result elements, each thread processes more columns and loads fewer looked-up rows at once.
    fn suited(&self, _: &Tuning, target: &Target, size: &dyn Fn(&Dim) -> Option<u64>) -> Option<Tile> {
        let is_wide = has_named_rows(self) && !target.software && is_for_many(&self.extents, MANY_ELEMENTS, size);
        let threads = suited_threads(target);
        is_wide.then_some(Tile::SegmentedReduce(ThreadTile { threads, groups_per_thread: 2, rows_per_thread: 2 }))
    }
}

/// The tile of a tuning, or the default for unknown sizes.
fn tile(kernel: &Bound<'_, SegmentedReduce>, target: &Target, tuning: &Tuning) -> Result<ThreadTile, EmitError> {
    let tile = tile_of(tuning, "fold", |tile| if let Tile::SegmentedReduce(tile) = tile { Some(tile) } else { None })?;
    let rows_per_thread = match has_named_rows(kernel) {
        _ if target.software => 1,
        true => NAMED_ROWS,
        false => ROWS,
    };
    let suited = ThreadTile { threads: suited_threads(target), groups_per_thread: 1, rows_per_thread };
    of_threads(target, tile.unwrap_or(suited))
}

/// The accumulator at position `n` of a group of columns.
fn total(n: usize, group: usize) -> String {
    if group == 0 { format!("total{n}") } else { format!("total{n}_{group}") }
}

/// Statements for values that are the same for all rows of a sample, and statements that accumulate row `n`. If a
/// thread loads several `rows` at once, the stride between them is the number of threads that share a result.
fn elements(
    kernel: &Bound<'_, SegmentedReduce>,
    points: &Points<'_>,
    module: &mut Module,
    (coords, codes): (&Coords, &[Code]),
    (rows, parts): (u32, u32),
) -> Result<(String, String), EmitError> {
    let roots: Vec<ExprId> = kernel.sums.iter().map(|sum| sum.value).collect();
    let (dag, axis) = (&module.body.dag, points.columns.axis);
    let is_of_row = |id: ExprId| dag.coords(id) >> kernel.row & 1 == 1;
    let is_of_column = |id: ExprId| dag.coords(id) >> axis & 1 == 1;
    let mut sample = Code::point(coords, &[]);
    let mut of_sample: Vec<Code> = codes.iter().map(Code::inner).collect();
    let mut common = String::new();
    if kernel.index.is_none() {
        sample.eval_where(module, &roots, |id| !is_of_row(id) && !is_of_column(id))?;
        common += &sample.take();
        for code in &mut of_sample {
            code.learn_from(module, &sample, axis);
            code.eval_where(module, &roots, |id| !is_of_row(id))?;
            common += &code.take();
        }
    }
    let (mut text, mut scopes) = (String::new(), vec![]);
    for row in 0..rows {
        let (mut of_row, mut name) = (sample.inner(), "n".to_owned());
        if row > 0 {
            name += &row.to_string();
            of_row.line(&format!("let {name} = min(n + {}, rows - 1);", row * parts));
        }
        of_row.move_to(kernel.row, &name);
        of_row.eval_where(module, &roots, |id| !is_of_column(id))?;
        text += &of_row.take();
        for code in &of_sample {
            let mut code = code.inner();
            code.move_to(kernel.row, &name);
            code.learn_from(module, &of_row, axis);
            scopes.push(code);
        }
    }
    if scopes.len() > 1 {
        for code in &mut scopes {
            code.eval_where(module, &roots, |id| matches!(dag.expr(id), Expr::Load { .. }))?;
            text += &code.take();
        }
    }
    for (row, scopes) in (0..).zip(scopes.chunks_mut(codes.len())) {
        let mut combined = String::new();
        for (group, code) in scopes.iter_mut().enumerate() {
            let values = code.eval(module, &roots)?;
            for (n, (sum, value)) in kernel.sums.iter().zip(values).enumerate() {
                let total = total(n, group);
                let joined = points.columns.join(sum.op, &total, &points.columns.text(&value));
                code.line(&format!("{total} = {joined};"));
            }
            combined += &code.take();
        }
        text += &match row {
            0 => combined,
            _ => format!("if (n + {} < rows) {{\n{}}}\n", row * parts, indented(&combined)),
        };
    }
    Ok((common, text))
}

fn nested(text: &str, levels: usize) -> String {
    (0..levels).fold(text.to_owned(), |text, _| indented(&text))
}

/// Statements that compute `wanted`, the result row to which row `n` is added.
fn look_up(module: &mut Module, index: ExprId, row: u8) -> Result<(String, String), EmitError> {
    let mut code = Code::point(&Coords::default().with(row, "n"), &[]);
    let wanted = code.eval_one(module, index)?.first();
    Ok((code.take(), format!("let wanted = {wanted};\n")))
}

/// Statements that combine the accumulators of threads that share a result, and store it.
fn results(
    kernel: &Bound<'_, SegmentedReduce>,
    points: &Points<'_>,
    shares: &Shares,
    module: &mut Module,
    codes: Vec<Code>,
) -> Result<String, EmitError> {
    let (mut text, mut stores) = (String::new(), String::new());
    for (group, (mut code, column)) in codes.into_iter().zip(&points.names).enumerate() {
        for (n, sum) in kernel.sums.iter().enumerate() {
            let own = total(n, group);
            let name = match shares.parts {
                1 => own,
                _ => {
                    let result = module.name();
                    text += &format!("let {result} = {}(local, {own});\n", combine(&[sum.op]));
                    result
                }
            };
            code.supply(if points.columns.lanes == 1 { WgslValue::Uniform(name) } else { WgslValue::Vector(name) });
        }
        points.columns.store(&mut code, module, column, &kernel.nest.outputs)?;
        stores += &code.take();
    }
    let condition = if shares.parts > 1 { "if (inside && part == 0)" } else { "if (inside)" };
    Ok(text + &format!("{condition} {{\n{}}}\n", indented(&stores)))
}

/// The functions that combine accumulators of threads, for the template.
fn combinations(kernel: &Bound<'_, SegmentedReduce>, points: &Points<'_>) -> Variable {
    let mut ops: Vec<ReduceOp> = vec![];
    for sum in &kernel.sums {
        if !ops.contains(&sum.op) {
            ops.push(sum.op);
        }
    }
    let function =
        |op: &ReduceOp| Variable::from_pairs([("name", combine(&[*op])), ("join", points.columns.join(*op, "a", "b"))]);
    ops.iter().map(function).collect()
}

/// The results, in groups of four columns, or individually if no access is aligned.
struct Points<'k> {
    columns: Columns<'k>,
    /// The name of the last coordinate of each group of a thread. The distance between groups is the number of threads
    /// per row.
    names: Vec<String>,
    /// Extents of the loop over results, with one point per thread position.
    extents: Vec<Dim>,
}

impl<'k> Points<'k> {
    fn new(kernel: &'k Bound<'_, SegmentedReduce>, module: &Module, groups: u32) -> Result<Self, EmitError> {
        let Some((last, outer)) = kernel.extents.split_last() else {
            return Err(EmitError::Missing { what: "extent", index: 0, count: 0 });
        };
        let axis = outer.len() as u8;
        let values: Vec<ExprId> = kernel.sums.iter().map(|sum| sum.value).collect();
        let wide = last.as_const().filter(|&width| width >= 4 && !outer.is_empty());
        let wide = wide.filter(|_| vector_accesses(module.body, axis, &values, &kernel.nest.outputs) > 0);
        let lanes = if wide.is_some() { 4 } else { 1 };
        let mut extents = kernel.extents.clone();
        let mut groups = if kernel.index.is_none() { groups } else { 1 };
        match (wide.map(|width| width.div_ceil(4)), extents.last_mut()) {
            (Some(columns), Some(last)) => {
                groups = groups_of_row(columns, groups);
                *last = (columns / groups as usize).into();
            }
            _ => groups = 1,
        }
        let name = match lanes {
            1 => format!("c{axis}"),
            _ => "column".to_owned(),
        };
        let names = (0..groups).map(|group| if group == 0 { name.clone() } else { format!("{name}_{group}") });
        Ok(Self { columns: Columns { axis, extent: last, lanes }, names: names.collect(), extents })
    }

    /// Adds statements that compute the result position `at` of a thread, and whether it exists (`inside`). Positions
    /// follow the order of results.
    fn place(&self, module: &mut Module, main: &mut Code, shares: &Shares) -> Vec<GridFactor> {
        let points = module.product(&self.extents);
        main.line(&format!("let points = {points};"));
        main.line("let wanted = workgroup * PLACES + place;");
        main.line("let inside = wanted < points;");
        main.line("// Places beyond the last repeat it, so that all threads meet at barriers.");
        main.line("let at = min(wanted, points - 1);");
        vec![GridFactor::Tiles(self.extents.clone(), shares.places())]
    }

    /// Like [`Points::place`], but a workgroup computes a block of result rows, from `first` to before `past`, and a
    /// range of column groups.
    fn place_by_row(&self, module: &mut Module, main: &mut Code, shares: &Shares) -> Vec<GridFactor> {
        let (results, inner) = self.extents.split_at(1);
        let (all, columns, of_row) = (module.product(results), module.product(inner), shares.columns);
        main.line(&format!("let results = {all};"));
        main.line(&format!("let columns = {columns};"));
        main.line(&format!("let column_tiles = (columns + {}) / {of_row};", of_row - 1));
        main.line("let block = workgroup / column_tiles;");
        main.line("let first = block * OWNERS;");
        main.line("let past = min(first + OWNERS, results);");
        main.line(&format!("let owner = place / {of_row};"));
        main.line(&format!("let own_column = (workgroup - block * column_tiles) * {of_row} + place % {of_row};"));
        main.line("let inside = first + owner < past && own_column < columns;");
        main.line("// Places beyond the last repeat it, so that all threads meet at barriers.");
        main.line("let at = min(first + owner, results - 1) * columns + min(own_column, columns - 1);");
        vec![GridFactor::Tiles(results.to_vec(), shares.owners), GridFactor::Tiles(inner.to_vec(), of_row)]
    }

    /// Statements that compute the coordinates of `at`.
    fn split(&self, module: &mut Module, main: &mut Code) -> Coords {
        let Columns { axis, lanes, .. } = self.columns;
        let mut names = split_row(module, main, &self.extents, "at", "");
        if lanes > 1 {
            main.line(&format!("let column = c{axis} * {lanes};"));
            let apart = self.extents.last().and_then(Dim::as_const).unwrap_or(0) * lanes;
            for (group, name) in self.names.iter().enumerate().skip(1) {
                main.line(&format!("let {name} = column + {};", group * apart));
            }
            names.truncate(axis.into());
            names.extend(self.names.first().cloned());
        }
        Coords::first(names)
    }

    /// Code for the points of each group.
    fn codes(&self, module: &mut Module, main: &mut Code, coords: &Coords) -> Vec<Code> {
        let Columns { axis, lanes, extent } = self.columns;
        let mut codes = vec![];
        for (group, name) in self.names.iter().enumerate() {
            let own = coords.clone().with(axis, name);
            codes.push(match (lanes, self.columns.whole()) {
                (1, _) => Code::point(&own, &[]),
                (_, true) => Code::four(module, axis, &own, &[], None),
                (_, false) => {
                    let valid = if group == 0 { "valid".to_owned() } else { format!("valid_{group}") };
                    let extent = module.dim(extent);
                    main.line(&format!("let {valid} = ({name} + vec4<i32>(0, 1, 2, 3)) < vec4<i32>({extent});"));
                    Code::four(module, axis, &own, &[], Some(&valid))
                }
            });
        }
        codes
    }
}

/// The product of known dimensions.
fn count(dims: &[Dim]) -> Option<usize> {
    dims.iter().try_fold(1usize, |all, dim| all.checked_mul(dim.as_const()?))
}

/// Threads that share the rows of a result, a power of two, at most those of the workgroup. Depends only on the results, so that a sum
/// has the same bits with any tile of as many threads, and whether its rows are looked up or not.
fn parts_of(extents: &[Dim]) -> u32 {
    let wanted = count(extents).map_or(0, |results| BUSY / results.div_ceil(4).max(1));
    let wanted = u32::try_from(wanted).unwrap_or(MOST_PARTS).clamp(PARTS, MOST_PARTS);
    1 << wanted.ilog2()
}

/// The division of a workgroup's threads among results.
struct Shares {
    /// Threads that share a result.
    parts: u32,
    /// Result rows.
    owners: u32,
    /// Results per row for sums by index; otherwise 1.
    columns: u32,
}

impl Shares {
    fn new(kernel: &Bound<'_, SegmentedReduce>, points: &Points<'_>, threads: u32) -> Self {
        if kernel.index.is_none() {
            let parts = parts_of(&kernel.extents).min(threads);
            return Self { parts, owners: threads / parts, columns: 1 };
        }
        let at_most = |dims: &[Dim], most: u32| {
            count(dims).map_or(most, |count| u32::try_from(count).unwrap_or(most).min(most)).max(1).next_power_of_two()
        };
        let (results, inner) = points.extents.split_at(1);
        let columns = at_most(inner, COLUMNS.min(threads));
        let owners = at_most(results, OWNERS.min(threads / columns));
        Self { parts: threads / columns / owners, owners, columns }
    }

    /// Number of results per workgroup.
    fn places(&self) -> u32 {
        self.owners * self.columns
    }
}
