//! Rows combined one after the other: sums by sample and by index.

use super::coords::Coords;
use super::expr::{Code, indented};
use super::hook::{Columns, Combine, float};
use super::map::split_row;
use super::matmul::row_count;
use super::module::Module;
use super::reduce::combine;
use super::store::vector_accesses;
use super::template::{Main, Template, template};
use super::value::Emitted;
use super::{EmitError, GridFactor, ParsedKernel, Scheduled, Tuning};
use crate::plan::ReduceOp;
use crate::schedule::Fold;
use minijinja::Value as Variable;
use rewire_graph::Dim;
use rewire_graph::pointwise::ExprId;

static TEMPLATE: Template = template!("fold.wgsl");

/// Threads that share the rows of a result: few, since samples may be short.
const PARTS: u32 = 8;
/// Rows of results of a workgroup of sums by index, at most.
const OWNERS: u32 = 64;
/// Groups of columns of a workgroup of sums by index, at most.
const COLUMNS: u32 = 8;
/// Rows whose indices a workgroup looks up at a time.
const CHUNK: u32 = 1024;

impl Scheduled for Fold<'_> {
    /// Emits sums over rows.
    fn emit(&self, mut module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let threads = tuning.threads(module.target)?;
        for sum in &self.sums {
            float(&module, "a sum over rows", sum.value)?;
        }
        let points = Points::new(self, &module)?;
        let shares = Shares::new(self, &points, threads);
        let mut main = Code::point(&Coords::default(), &[]);
        let grid = match self.index {
            Some(_) => points.place_by_row(&mut module, &mut main, &shares),
            None => points.place(&mut module, &mut main, &shares),
        };
        let coords = points.split(&mut module, &mut main).with(self.row, "n");
        let mut code = points.code(&mut module, &mut main, &coords);
        let rows = row_count(&mut module, self.rows)?;

        let roots: Vec<ExprId> = self.sums.iter().map(|sum| sum.value).collect();
        let mut inner = code.inner();
        let dag = &module.body.dag;
        // What is the same for all rows of a sample is computed once.
        if self.index.is_none() {
            inner.eval_where(&mut module, &roots, |id| dag.coords(id) >> self.row & 1 == 0)?;
        }
        let common = inner.take();
        let values = inner.eval(&mut module, &roots)?;
        let mut totals = String::new();
        for (n, (sum, value)) in self.sums.iter().zip(values).enumerate() {
            let start = Combine(sum.op).identity();
            totals += &format!("var total{n} = {}({start});\n", points.columns.ty());
            inner.line(&format!(
                "total{n} = {};",
                points.columns.join(sum.op, &format!("total{n}"), &points.columns.text(&value))
            ));
        }
        let element = inner.take();
        let (index, looked_up) = match self.index {
            Some(index) => look_up(&mut module, index, self.row)?,
            None => (String::new(), String::new()),
        };
        let results = results(self, &points, &shares, &mut module, &mut code)?;
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
            ("totals", indented(&totals).into()),
            ("common", nested(&common, 2).trim_end().into()),
            ("index", nested(&(index + &looked_up), 3).trim_end().into()),
            ("element", nested(&element, if self.index.is_some() { 4 } else { 3 }).trim_end().into()),
            ("results", indented(&results).into()),
        ];
        let main = Main { threads, hooks: String::new(), body: indented(&main.take()), variables };
        TEMPLATE.render(module, main, grid, vec![])
    }
}

fn nested(text: &str, levels: usize) -> String {
    (0..levels).fold(text.to_owned(), |text, _| indented(&text))
}

/// Statements that find the row of results that row `n` counts for, `wanted`.
fn look_up(module: &mut Module, index: ExprId, row: u8) -> Result<(String, String), EmitError> {
    let mut code = Code::point(&Coords::default().with(row, "n"), &[]);
    let wanted = code.eval_one(module, index)?.first();
    Ok((code.take(), format!("let wanted = {wanted};\n")))
}

/// Statements that combine the sums of the threads that share a result, and store it.
fn results(
    kernel: &Fold<'_>,
    points: &Points<'_>,
    shares: &Shares,
    module: &mut Module,
    code: &mut Code,
) -> Result<String, EmitError> {
    for (n, sum) in kernel.sums.iter().enumerate() {
        let own = format!("total{n}");
        let name = match shares.parts {
            1 => own,
            _ => {
                let result = module.name();
                code.line(&format!("let {result} = {}(local, {own});", combine(&[sum.op])));
                result
            }
        };
        code.supply(if points.columns.lanes == 1 { Emitted::Uniform(name) } else { Emitted::Vector(name) });
    }
    let mut last = code.inner();
    points.columns.store(&mut last, module, &points.column(), &kernel.nest.outputs)?;
    let condition = if shares.parts > 1 { "if (inside && part == 0)" } else { "if (inside)" };
    code.block(condition, &last.take());
    Ok(code.take())
}

/// The functions that combine the sums of threads, for the template.
fn combinations(kernel: &Fold<'_>, points: &Points<'_>) -> Variable {
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

/// The results, in groups of four columns, or one by one where nothing aligns.
struct Points<'k> {
    columns: Columns<'k>,
    /// Extents of the loop over groups.
    extents: Vec<Dim>,
}

impl<'k> Points<'k> {
    fn new(kernel: &'k Fold<'_>, module: &Module) -> Result<Self, EmitError> {
        let Some((last, outer)) = kernel.extents.split_last() else {
            return Err(EmitError::Missing { what: "extent", index: 0, count: 0 });
        };
        let axis = outer.len() as u8;
        let values: Vec<ExprId> = kernel.sums.iter().map(|sum| sum.value).collect();
        let wide = last.as_const().filter(|&width| width >= 4 && !outer.is_empty());
        let wide = wide.filter(|_| vector_accesses(module.body, axis, &values, &kernel.nest.outputs) > 0);
        let mut extents = kernel.extents.clone();
        if let (Some(width), Some(last)) = (wide, extents.last_mut()) {
            *last = width.div_ceil(4).into();
        }
        Ok(Self { columns: Columns { axis, extent: last, lanes: if wide.is_some() { 4 } else { 1 } }, extents })
    }

    /// Statements that find the place of a thread, `at`, and whether there is one, `inside`: groups one after the other.
    fn place(&self, module: &mut Module, main: &mut Code, shares: &Shares) -> Vec<GridFactor> {
        let points = module.product(&self.extents);
        main.line(&format!("let points = {points};"));
        main.line("let wanted = workgroup * PLACES + place;");
        main.line("let inside = wanted < points;");
        main.line("// Places beyond the last repeat it, so that all threads meet at barriers.");
        main.line("let at = min(wanted, points - 1);");
        vec![GridFactor::Tiles(self.extents.clone(), shares.places())]
    }

    /// As [`Points::place`]: a block of rows of results, from `first` to before `past`, by groups of columns.
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

    /// Statements that find the coordinates of `at`.
    fn split(&self, module: &mut Module, main: &mut Code) -> Coords {
        let mut names = split_row(module, main, &self.extents, "at");
        if self.columns.lanes > 1 {
            main.line(&format!("let column = c{} * {};", self.columns.axis, self.columns.lanes));
            names.truncate(self.columns.axis.into());
            names.push(self.column());
        }
        Coords::first(names)
    }

    /// The last coordinate, a name.
    fn column(&self) -> String {
        if self.columns.lanes > 1 { "column".to_owned() } else { format!("c{}", self.columns.axis) }
    }

    fn code(&self, module: &mut Module, main: &mut Code, coords: &Coords) -> Code {
        if self.columns.lanes == 1 {
            return Code::point(coords, &[]);
        }
        let whole = self.columns.whole();
        if !whole {
            let extent = module.dim(self.columns.extent);
            main.line(&format!("let valid = (column + vec4<i32>(0, 1, 2, 3)) < vec4<i32>({extent});"));
        }
        Code::four(module, self.columns.axis, coords, &[], (!whole).then_some("valid"))
    }
}

/// How the threads of a workgroup are divided.
struct Shares {
    /// Threads that share a result.
    parts: u32,
    /// Rows of results.
    owners: u32,
    /// Results of a row, where rows matter.
    columns: u32,
}

impl Shares {
    fn new(kernel: &Fold<'_>, points: &Points<'_>, threads: u32) -> Self {
        if kernel.index.is_none() {
            let parts = PARTS.min(threads);
            return Self { parts, owners: threads / parts, columns: 1 };
        }
        let count = |dims: &[Dim]| dims.iter().try_fold(1usize, |all, dim| all.checked_mul(dim.as_const()?));
        let at_most = |dims: &[Dim], most: u32| {
            count(dims).map_or(most, |count| u32::try_from(count).unwrap_or(most).min(most)).max(1).next_power_of_two()
        };
        let (results, inner) = points.extents.split_at(1);
        let columns = at_most(inner, COLUMNS.min(threads));
        let owners = at_most(results, OWNERS.min(threads / columns));
        Self { parts: threads / columns / owners, owners, columns }
    }

    /// Results of a workgroup.
    fn places(&self) -> u32 {
        self.owners * self.columns
    }
}
