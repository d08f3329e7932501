use super::coords::Coords;
use super::device_function::Columns;
use super::expr::{Code, indented};
use super::module::Module;
use super::store::{everywhere, looks_up, vector_accesses};
use super::template::{Main, Template, template};
use super::{EmitError, ParsedKernel, Scheduled};
use crate::candidates::{is_for_many, per_thread};
use crate::checked::{of_threads, suited_threads, tile_of};
use rewire_graph::Dim;
use rewire_graph::pointwise::Expr;
use rewire_graph_rewrite::device::{GridFactor, Target, ThreadTile, Tile, Tuning};
use rewire_graph_rewrite::schedule::{Bound, Map};

static TEMPLATE: Template = template!("map.wgsl");

const LANES: usize = 4;

/// Bytes of a tensor that a thread processes, so that enough loads are in flight.
const THREAD_BYTES: usize = 32;

/// Number of elements that occupy a large GPU with two rows per thread.
const MANY_ELEMENTS: u64 = 1 << 23;

impl Scheduled for Bound<'_, Map> {
    /// Emits a pointwise kernel. A thread computes groups of four neighbouring points, or one point if no access is
    /// aligned.
    fn emit(&self, mut module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let ThreadTile { threads, groups_per_thread: most, rows_per_thread: rows } = tile(self, module.target, tuning)?;
        let Some((last, outer)) = self.extents.split_last() else {
            return Err(EmitError::Missing { what: "extent", index: 0, count: 0 });
        };
        let axis = outer.len() as u8;
        let outputs = &self.nest.outputs;
        let wide = last.as_const().is_none_or(|n| n >= LANES) && vector_accesses(module.body, axis, &[], outputs) > 0;
        let lanes = if wide { LANES } else { 1 };
        let groups = if wide { last.as_const().map_or(1, |n| groups_of_row(n.div_ceil(lanes), most)) } else { 1 };
        let rows = if last.as_const().is_some() { rows } else { 1 };

        let mut main = Code::point(&Coords::default(), &[]);
        let grid = match last.as_const() {
            Some(n) => {
                let columns = n.div_ceil(lanes) / groups as usize;
                let count = module.product(outer);
                main.line(&format!("let points = {count} * {columns};"));
                let mut sizes = outer.to_vec();
                sizes.push(columns.into());
                vec![GridFactor::Tiles(sizes, threads * rows)]
            }
            None => {
                let tile = threads * lanes as u32;
                let extent = module.dim(last);
                main.line(&format!("let tiles = ({extent} + {}) / {tile};", tile - 1));
                vec![GridFactor::Tiles(outer.to_vec(), 1), GridFactor::Tiles(vec![last.clone()], tile)]
            }
        };
        let share = Share { threads, lanes, groups, rows };
        let points: Vec<_> =
            (0..rows).map(|row| ThreadPoint::new(&mut module, &mut main, (last, outer), &share, row)).collect();
        let roots = everywhere(outputs);
        // Values that do not depend on the column are computed once per row.
        let mut of_rows = Vec::with_capacity(points.len());
        for point in &points {
            let mut row = Code::point(&point.coords(0), &[]);
            row.eval_where(&mut module, &roots, |id| self.nest.body.dag.coords(id) & (1 << axis) == 0)?;
            main.append(&row.take());
            of_rows.push(row);
        }
        // All groups load before any of them stores.
        let mut scopes = Vec::with_capacity(points.len());
        for (point, row) in points.iter().zip(&of_rows) {
            let mut groups_of_point = Vec::with_capacity(groups as usize);
            for group in 0..groups {
                let mut code = point.code(&mut module, &mut main, (last, outer), group, lanes);
                code.learn_from(&module, row, axis);
                let loads = |id| matches!(self.nest.body.dag.expr(id), Expr::Load { .. });
                code.eval_where(&mut module, &roots, loads)?;
                main.append(&code.take());
                groups_of_point.push(code);
            }
            scopes.push(groups_of_point);
        }
        for code in scopes.iter_mut().flatten() {
            code.eval(&mut module, &roots)?;
            main.append(&code.take());
        }
        for (point, scopes) in points.iter().zip(scopes) {
            let mut stores = String::new();
            for (column, mut code) in point.columns.iter().zip(scopes) {
                Columns { axis, extent: last, lanes }.store(&mut code, &mut module, column, outputs)?;
                stores += &code.take();
            }
            main.block(&format!("if ({})", point.exists), &stores);
        }
        let body = indented(&main.take());
        let main = Main { threads, body, ..Main::default() };
        TEMPLATE.render(module, main, grid, vec![])
    }

    fn takes(&self, tile: &Tile) -> bool {
        matches!(tile, Tile::Map(_))
    }

    fn tiles(&self, _: &Target, _: &Tuning) -> Vec<Tile> {
        let rows: &[u32] = if has_named_rows(self) { &[1, 2, 4] } else { &[1] };
        per_thread(&[1, 2, 4], rows).into_iter().map(Tile::Map).collect()
    }

    /// If there are many elements, each thread looks up two rows, so that their loads overlap. Kernels that search for
    /// samples do not benefit.
    fn suited(&self, _: &Tuning, target: &Target, size: &dyn Fn(&Dim) -> Option<u64>) -> Option<Tile> {
        let reads_many = has_named_rows(self) && !searches(self);
        let is_wide = reads_many && !target.software && is_for_many(&self.extents, MANY_ELEMENTS, size);
        is_wide.then(|| Tile::Map(ThreadTile { rows_per_thread: 2, ..suited(self, target) }))
    }
}

/// The tile of a tuning, or the default for unknown sizes.
fn tile(kernel: &Bound<'_, Map>, target: &Target, tuning: &Tuning) -> Result<ThreadTile, EmitError> {
    let tile = tile_of(tuning, "map", |tile| if let Tile::Map(tile) = tile { Some(tile) } else { None })?;
    of_threads(target, tile.unwrap_or_else(|| suited(kernel, target)))
}

fn suited(kernel: &Bound<'_, Map>, target: &Target) -> ThreadTile {
    let groups_per_thread = if target.software { 1 } else { groups_per_thread(kernel) };
    ThreadTile { threads: suited_threads(target), groups_per_thread, rows_per_thread: 1 }
}

/// True if rows are looked up by ids.
fn has_named_rows(kernel: &Bound<'_, Map>) -> bool {
    looks_up(&kernel.nest.body, &everywhere(&kernel.nest.outputs))
}

fn searches(kernel: &Bound<'_, Map>) -> bool {
    let dag = &kernel.nest.body.dag;
    let parts = dag.reachable(&everywhere(&kernel.nest.outputs));
    parts.into_iter().any(|id| matches!(dag.expr(id), Expr::Sample { .. }))
}

/// Groups of four per thread: fewer for wider results.
fn groups_per_thread(kernel: &Bound<'_, Map>) -> u32 {
    let bits = kernel.nest.outputs.iter().map(|output| output.dtype.format().bits).max().unwrap_or(32);
    (8 * THREAD_BYTES / (LANES * bits)).max(1) as u32
}

/// Smallest number of neighbouring threads per row, for coalesced accesses.
const ROW_THREADS: usize = 8;

/// Groups per thread: the largest number up to `most` that divides the groups of a row evenly.
pub(super) fn groups_of_row(columns: usize, most: u32) -> u32 {
    let fits = |groups: &u32| columns.is_multiple_of(*groups as usize) && columns / *groups as usize >= ROW_THREADS;
    (2..=most).rev().find(fits).unwrap_or(1)
}

/// The elements that a thread computes.
struct Share {
    /// Threads per workgroup.
    threads: u32,
    /// Elements per group.
    lanes: usize,
    /// Groups per row.
    groups: u32,
    /// Rows.
    rows: u32,
}

/// The points of a thread. Its groups are as far apart as there are threads per row; its rows are as far apart as a
/// workgroup has rows per pass.
struct ThreadPoint {
    /// Names of the outer coordinates.
    outer: Vec<String>,
    /// The name of the last coordinate of each group.
    columns: Vec<String>,
    /// The condition under which the points exist. Threads beyond the last point recompute it without storing.
    exists: String,
}

impl ThreadPoint {
    /// Statements that compute the coordinates in the thread's row `number`.
    fn new(
        module: &mut Module,
        main: &mut Code,
        (last, outer): (&Dim, &[Dim]),
        &Share { threads, lanes, groups, rows }: &Share,
        number: u32,
    ) -> Self {
        let own = if number == 0 { String::new() } else { format!("_of_{number}") };
        let exists = match last.as_const() {
            Some(n) => {
                let columns = n.div_ceil(lanes) / groups as usize;
                main.line(&match number {
                    0 => format!("let thread = workgroup * {} + local;", threads * rows),
                    _ => format!("let thread{own} = thread + {};", threads * number),
                });
                main.line(&format!("let at{own} = min(thread{own}, points - 1);"));
                main.line(&format!("let row{own} = i32(u32(at{own}) / {}u);", columns.max(1)));
                main.line(&format!("let column{own} = (at{own} - row{own} * {columns}) * {lanes};"));
                (1..groups as usize).for_each(|group| {
                    main.line(&format!("let column{own}_{group} = column{own} + {};", group * columns * lanes))
                });
                format!("thread{own} < points")
            }
            None => {
                let (extent, tile) = (module.dim(last), threads * lanes as u32);
                main.line("let row = workgroup / tiles;");
                main.line(&format!("let at = (workgroup - row * tiles) * {tile} + local * {lanes};"));
                main.line(&format!("let column = min(at, ({extent} - 1) & {});", -(lanes as i64)));
                format!("at < {extent}")
            }
        };
        let name = |group| if group == 0 { format!("column{own}") } else { format!("column{own}_{group}") };
        let outer = split_row(module, main, outer, &format!("row{own}"), &own);
        Self { outer, columns: (0..groups).map(name).collect(), exists }
    }

    /// The coordinates of a group.
    fn coords(&self, group: u32) -> Coords {
        Coords::first(self.outer.iter().chain(self.columns.get(group as usize)).cloned())
    }

    /// Code for the points of a group.
    fn code(
        &self,
        module: &mut Module,
        main: &mut Code,
        (last, outer): (&Dim, &[Dim]),
        group: u32,
        lanes: usize,
    ) -> Code {
        let coords = self.coords(group);
        match lanes {
            1 => Code::point(&coords, &[]),
            _ if last.as_const().is_some_and(|n| n % LANES == 0) => {
                Code::four(module, outer.len() as u8, &coords, &[], None)
            }
            _ => {
                let (extent, valid) = (module.dim(last), module.name());
                let lanes = format!("{} + vec4<i32>(0, 1, 2, 3)", self.columns[group as usize]);
                main.line(&format!("let {valid} = ({lanes}) < vec4<i32>({extent});"));
                Code::four(module, outer.len() as u8, &coords, &[], Some(&valid))
            }
        }
    }
}

/// Adds statements that compute the outer coordinates of a flattened row. Returns their names, with the suffix `own`.
pub(super) fn split_row(module: &mut Module, code: &mut Code, outer: &[Dim], row: &str, own: &str) -> Vec<String> {
    let mut rest = row.to_owned();
    let mut names = vec![String::new(); outer.len()];
    for (axis, dim) in outer.iter().enumerate().rev() {
        let name = format!("c{axis}{own}");
        if axis == 0 {
            code.line(&format!("let {name} = {rest};"));
        } else {
            let (extent, divisor) = match dim.as_const() {
                Some(n) => (n.to_string(), format!("{}u", n.max(1))),
                None => (module.dim(dim), format!("u32({})", module.dim(dim))),
            };
            code.line(&format!("let rest{axis}{own} = i32(u32({rest}) / {divisor});"));
            code.line(&format!("let {name} = {rest} - rest{axis}{own} * {extent};"));
            rest = format!("rest{axis}{own}");
        }
        names[axis] = name;
    }
    names
}
