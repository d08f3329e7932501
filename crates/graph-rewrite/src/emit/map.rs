use super::expr::{Scope, indented};
use super::module::Module;
use super::store::{everywhere, store_all_four, store_all_point, vector_accesses};
use super::template::{Main, render};
use super::{EmitError, EmittedKernel, GridFactor, Tuning};
use crate::plan::{Map, Place};
use rewire_graph::pointwise::Expr;
use rewire_graph::{DType, Dim};

const LANES: usize = 4;

/// Bytes of a tensor that a thread takes, so that enough loads are under way at once.
const THREAD_BYTES: usize = 32;

/// Emits a loop over points: a thread computes groups of four neighbouring points, or one point where nothing aligns.
pub(super) fn emit(kernel: &Map, mut module: Module, tuning: &Tuning) -> Result<EmittedKernel, EmitError> {
    let threads = tuning.threads(module.target)?;
    let Some((last, outer)) = kernel.extents.split_last() else {
        return Err(EmitError::Missing { what: "extent", index: 0, count: 0 });
    };
    let axis = outer.len();
    let wide = last.as_const().is_none_or(|n| n >= LANES) && vector_accesses(&module, axis, &[], &kernel.outputs) > 0;
    let lanes = if wide { LANES } else { 1 };
    let several = wide && last.as_const().is_some() && !module.target.software;
    let groups = tuning.groups_per_thread(if several { groups_per_thread(kernel) } else { 1 })?;
    let groups = if wide && last.as_const().is_some() { groups } else { 1 };

    let mut main = Scope::point(&[], vec![]);
    let grid = match last.as_const() {
        Some(n) => {
            let columns = n.div_ceil(lanes);
            let rows = module.product(outer);
            main.line(&format!("let points = {rows} * {columns};"));
            let mut sizes = outer.to_vec();
            sizes.push(columns.into());
            vec![GridFactor::Tiles(sizes, threads * groups)]
        }
        None => {
            let tile = threads * lanes as u32;
            let extent = module.dim(last);
            main.line(&format!("let tiles = ({extent} + {}) / {tile};", tile - 1));
            vec![GridFactor::Tiles(outer.to_vec(), 1), GridFactor::Tiles(vec![last.clone()], tile)]
        }
    };
    // All groups load before any stores.
    let mut scopes = Vec::with_capacity(groups as usize);
    for group in 0..groups {
        let mut point = Point::new(&mut module, &mut main, (last, outer), (group, groups), (threads, lanes));
        let roots = everywhere(&kernel.outputs);
        point.scope.eval_where(&mut module, &roots, |id| matches!(kernel.body.dag.expr(id), Expr::Load { .. }))?;
        main.append(&point.scope.take());
        scopes.push(point);
    }
    for Point { mut scope, column, exists } in scopes {
        match wide {
            true => store_all_four(&mut scope, &mut module, (axis, &column, last), &kernel.outputs)?,
            false => store_all_point(&mut scope, &mut module, &column, &kernel.outputs)?,
        }
        main.block(&format!("if ({exists})"), &scope.take());
    }
    let body = indented(&main.take());
    let main = Main { threads, body, ..Main::default() };
    render("map.wgsl", include_str!("../../../../shaders/map.wgsl"), module, main, grid, vec![])
}

/// Groups of four that a thread computes: fewer of wider elements.
fn groups_per_thread(kernel: &Map) -> u32 {
    let operands = kernel.body.operands.iter().filter(|operand| operand.place == Place::Device);
    let dtypes = operands.map(|operand| operand.dtype).chain(kernel.outputs.iter().map(|output| output.dtype));
    let bytes = dtypes.map(DType::bytes).max().unwrap_or(LANES);
    (THREAD_BYTES / (LANES * bytes)).max(1) as u32
}

/// A group of points of a thread.
struct Point {
    scope: Scope,
    /// The name of the last coordinate.
    column: String,
    /// The condition under which it exists. Groups beyond the last repeat it, and store nothing.
    exists: String,
}

impl Point {
    /// Group `group` of `groups`, and the statements that find its coordinates.
    fn new(
        module: &mut Module,
        main: &mut Scope,
        (last, outer): (&Dim, &[Dim]),
        (group, groups): (u32, u32),
        (threads, lanes): (u32, usize),
    ) -> Self {
        let name = |text: &str| if group == 0 { text.to_owned() } else { format!("{text}_{group}") };
        let (thread, row, column, valid) = (name("thread"), name("row"), name("column"), name("valid"));
        let exists = match last.as_const() {
            Some(n) => {
                let columns = n.div_ceil(lanes);
                let at = name("at");
                main.line(&format!("let {thread} = (workgroup * {groups} + {group}) * {threads} + i32(local);"));
                main.line(&format!("let {at} = min({thread}, points - 1);"));
                main.line(&format!("let {row} = i32(u32({at}) / {}u);", columns.max(1)));
                main.line(&format!("let {column} = ({at} - {row} * {columns}) * {lanes};"));
                format!("{thread} < points")
            }
            None => {
                let (extent, tile) = (module.dim(last), threads * lanes as u32);
                let at = name("at");
                main.line(&format!("let {row} = workgroup / tiles;"));
                main.line(&format!("let {at} = (workgroup - {row} * tiles) * {tile} + i32(local) * {lanes};"));
                main.line(&format!("let {column} = min({at}, ({extent} - 1) & {});", -(lanes as i64)));
                format!("{at} < {extent}")
            }
        };
        let suffix = if group == 0 { String::new() } else { format!("_{group}") };
        let mut coords = split_row(module, main, outer, &row, &suffix);
        coords.push(column.clone());
        let scope = match lanes {
            1 => Scope::point(&coords, vec![]),
            _ if last.as_const().is_some_and(|n| n % LANES == 0) => {
                Scope::four(module, outer.len(), &coords, vec![], None)
            }
            _ => {
                let extent = module.dim(last);
                main.line(&format!("let {valid} = ({column} + vec4<i32>(0, 1, 2, 3)) < vec4<i32>({extent});"));
                Scope::four(module, outer.len(), &coords, vec![], Some(&valid))
            }
        };
        Self { scope, column, exists }
    }
}

/// Statements that find the outer coordinates of a flattened row; returns their names, which end in `suffix`.
pub(super) fn split_row(module: &mut Module, scope: &mut Scope, outer: &[Dim], row: &str, suffix: &str) -> Vec<String> {
    let mut rest = row.to_owned();
    let mut names = vec![String::new(); outer.len()];
    for (axis, dim) in outer.iter().enumerate().rev() {
        let name = format!("c{axis}{suffix}");
        if axis == 0 {
            scope.line(&format!("let {name} = {rest};"));
        } else {
            let (extent, divisor) = match dim.as_const() {
                Some(n) => (n.to_string(), format!("{}u", n.max(1))),
                None => (module.dim(dim), format!("u32({})", module.dim(dim))),
            };
            scope.line(&format!("let rest{axis}{suffix} = i32(u32({rest}) / {divisor});"));
            scope.line(&format!("let {name} = {rest} - rest{axis}{suffix} * {extent};"));
            rest = format!("rest{axis}{suffix}");
        }
        names[axis] = name;
    }
    names
}
