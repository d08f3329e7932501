use super::coords::Coords;
use super::expr::{Code, indented};
use super::hook::Columns;
use super::module::Module;
use super::store::{everywhere, vector_accesses};
use super::template::{Main, Template, template};
use super::{EmitError, GridFactor, ParsedKernel, Scheduled, Target, Tuning};
use crate::schedule::Map;
use rewire_graph::Dim;
use rewire_graph::pointwise::Expr;

static TEMPLATE: Template = template!("map.wgsl");

const LANES: usize = 4;

/// Bytes of a tensor that a thread takes, so that enough loads are under way at once.
const THREAD_BYTES: usize = 32;

impl Scheduled for Map<'_> {
    /// Emits a loop over points: a thread computes groups of four neighbouring points, or one point where nothing aligns.
    fn emit(&self, mut module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let threads = tuning.threads(module.target)?;
        let Some((last, outer)) = self.extents.split_last() else {
            return Err(EmitError::Missing { what: "extent", index: 0, count: 0 });
        };
        let axis = outer.len() as u8;
        let outputs = &self.nest.outputs;
        let wide = last.as_const().is_none_or(|n| n >= LANES) && vector_accesses(module.body, axis, &[], outputs) > 0;
        let lanes = if wide { LANES } else { 1 };
        let suited = if module.target.software { 1 } else { groups_per_thread(self) };
        let most = tuning.groups_per_thread(suited)?;
        let groups = if wide { last.as_const().map_or(1, |n| groups_of_row(n.div_ceil(lanes), most)) } else { 1 };

        let mut main = Code::point(&Coords::default(), &[]);
        let grid = match last.as_const() {
            Some(n) => {
                let columns = n.div_ceil(lanes) / groups as usize;
                let rows = module.product(outer);
                main.line(&format!("let points = {rows} * {columns};"));
                let mut sizes = outer.to_vec();
                sizes.push(columns.into());
                vec![GridFactor::Tiles(sizes, threads)]
            }
            None => {
                let tile = threads * lanes as u32;
                let extent = module.dim(last);
                main.line(&format!("let tiles = ({extent} + {}) / {tile};", tile - 1));
                vec![GridFactor::Tiles(outer.to_vec(), 1), GridFactor::Tiles(vec![last.clone()], tile)]
            }
        };
        let point = ThreadPoint::new(&mut module, &mut main, (last, outer), groups, (threads, lanes));
        let roots = everywhere(outputs);
        // What is the same for a row is computed once.
        let mut row = Code::point(&point.coords(0), &[]);
        row.eval_where(&mut module, &roots, |id| self.nest.body.dag.coords(id) & (1 << axis) == 0)?;
        main.append(&row.take());
        // All groups load before any stores.
        let mut scopes = Vec::with_capacity(groups as usize);
        for group in 0..groups {
            let mut code = point.code(&mut module, &mut main, (last, outer), group, lanes);
            code.learn_from(&module, &row, axis);
            let loads = |id| matches!(self.nest.body.dag.expr(id), Expr::Load { .. });
            code.eval_where(&mut module, &roots, loads)?;
            main.append(&code.take());
            scopes.push(code);
        }
        for code in &mut scopes {
            code.eval(&mut module, &roots)?;
            main.append(&code.take());
        }
        let mut stores = String::new();
        for (column, mut code) in point.columns.iter().zip(scopes) {
            Columns { axis, extent: last, lanes }.store(&mut code, &mut module, column, outputs)?;
            stores += &code.take();
        }
        main.block(&format!("if ({})", point.exists), &stores);
        let body = indented(&main.take());
        let main = Main { threads, body, ..Main::default() };
        TEMPLATE.render(module, main, grid, vec![])
    }

    fn candidates(&self, _: &Target, _: &Tuning) -> Vec<Tuning> {
        let each = |groups| {
            let tuning =
                move |threads| Tuning { threads: Some(threads), groups_per_thread: Some(groups), ..Tuning::default() };
            [64, 128, 256].map(tuning)
        };
        [1, 2, 4].into_iter().flat_map(each).collect()
    }
}

/// Groups of four that a thread computes: fewer of wider results.
fn groups_per_thread(kernel: &Map<'_>) -> u32 {
    let bits = kernel.nest.outputs.iter().map(|output| output.dtype.format().bits).max().unwrap_or(32);
    (8 * THREAD_BYTES / (LANES * bits)).max(1) as u32
}

/// Neighbouring threads that a row is left for, so that their accesses stay together.
const ROW_THREADS: usize = 8;

/// Groups of a thread, at most `most`, that divide the groups of a row evenly.
fn groups_of_row(columns: usize, most: u32) -> u32 {
    let fits = |groups: &u32| columns.is_multiple_of(*groups as usize) && columns / *groups as usize >= ROW_THREADS;
    (2..=most).rev().find(fits).unwrap_or(1)
}

/// Where the points of a thread lie: groups of one row, as far apart as there are threads of a row.
struct ThreadPoint {
    /// Names of the outer coordinates.
    outer: Vec<String>,
    /// The last coordinate of each group, a name.
    columns: Vec<String>,
    /// The condition under which they exist. Threads beyond the last repeat it, and store nothing.
    exists: String,
}

impl ThreadPoint {
    /// Statements that find the coordinates.
    fn new(
        module: &mut Module,
        main: &mut Code,
        (last, outer): (&Dim, &[Dim]),
        groups: u32,
        (threads, lanes): (u32, usize),
    ) -> Self {
        let exists = match last.as_const() {
            Some(n) => {
                let columns = n.div_ceil(lanes) / groups as usize;
                main.line(&format!("let thread = workgroup * {threads} + local;"));
                main.line("let at = min(thread, points - 1);");
                main.line(&format!("let row = i32(u32(at) / {}u);", columns.max(1)));
                main.line(&format!("let column = (at - row * {columns}) * {lanes};"));
                (1..groups as usize).for_each(|group| {
                    main.line(&format!("let column_{group} = column + {};", group * columns * lanes))
                });
                "thread < points".to_owned()
            }
            None => {
                let (extent, tile) = (module.dim(last), threads * lanes as u32);
                main.line("let row = workgroup / tiles;");
                main.line(&format!("let at = (workgroup - row * tiles) * {tile} + local * {lanes};"));
                main.line(&format!("let column = min(at, ({extent} - 1) & {});", -(lanes as i64)));
                format!("at < {extent}")
            }
        };
        let name = |group| if group == 0 { "column".to_owned() } else { format!("column_{group}") };
        Self { outer: split_row(module, main, outer, "row"), columns: (0..groups).map(name).collect(), exists }
    }

    /// The coordinates of a group.
    fn coords(&self, group: u32) -> Coords {
        Coords::first(self.outer.iter().chain(self.columns.get(group as usize)).cloned())
    }

    /// A code of a group's points.
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

/// Statements that find the outer coordinates of a flattened row; returns their names.
pub(super) fn split_row(module: &mut Module, code: &mut Code, outer: &[Dim], row: &str) -> Vec<String> {
    let mut rest = row.to_owned();
    let mut names = vec![String::new(); outer.len()];
    for (axis, dim) in outer.iter().enumerate().rev() {
        let name = format!("c{axis}");
        if axis == 0 {
            code.line(&format!("let {name} = {rest};"));
        } else {
            let (extent, divisor) = match dim.as_const() {
                Some(n) => (n.to_string(), format!("{}u", n.max(1))),
                None => (module.dim(dim), format!("u32({})", module.dim(dim))),
            };
            code.line(&format!("let rest{axis} = i32(u32({rest}) / {divisor});"));
            code.line(&format!("let {name} = {rest} - rest{axis} * {extent};"));
            rest = format!("rest{axis}");
        }
        names[axis] = name;
    }
    names
}
