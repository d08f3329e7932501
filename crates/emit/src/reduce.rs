use super::coords::Coords;
use super::device_function::{Columns, Combine, float};
use super::expr::{Code, indented};
use super::map::split_row;
use super::module::Module;
use super::store::{store_point, vector_accesses};
use super::template::{Main, Template, template};
use super::value::WgslValue;
use super::{EmitError, ParsedKernel, Scheduled};
use crate::checked::{suited_threads, threads, tile_of};
use minijinja::Value as Variable;
use rewire_graph::Dim;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph_rewrite::device::{BindingChunks, GridFactor, ReductionTile, Target, Tile, Tuning};
use rewire_graph_rewrite::plan::{Output, ReduceOp};
use rewire_graph_rewrite::schedule::{Bound, Reduced, Reduction};

static TEMPLATE: Template = template!("reduce.wgsl");

/// Largest number of steps for which a thread keeps its columns in registers instead of reloading them in each pass.
const UNROLLED_STEPS: usize = 8;

/// The columns of a row and the threads that share them.
struct Shared<'a> {
    own: Columns<'a>,
    threads: usize,
    /// Number of steps per thread if it is small and constant; the code is then unrolled and loaded values stay in
    /// registers.
    steps: Option<usize>,
}

impl Shared<'_> {
    fn new<'a>(kernel: &Bound<'_, Reduction>, extent: &'a Dim, lanes: usize, workgroup: u32) -> Shared<'a> {
        let axis = kernel.extents.len().saturating_sub(1) as u8;
        let (threads, steps) = match extent.as_const() {
            Some(width) => {
                let groups = width.div_ceil(lanes).max(1);
                let threads = groups.div_ceil(2).next_power_of_two().min(workgroup as usize);
                let threads = threads.min(32).max(groups.div_ceil(UNROLLED_STEPS).next_power_of_two());
                let threads = threads.min(workgroup as usize);
                let steps = groups.div_ceil(threads);
                (threads, (steps <= UNROLLED_STEPS).then_some(steps))
            }
            None => (64.min(workgroup as usize), None),
        };
        Shared { own: Columns { axis, extent, lanes }, threads, steps }
    }

    /// Code for the columns at `column`. `valid` is the condition under which the first column exists; `None` if it
    /// always does.
    fn code(&self, module: &mut Module, row: &Code, coords: &Coords, column: &str, valid: Option<&str>) -> Code {
        let coords = coords.clone().with(self.own.axis, column);
        let mut code = match self.own.lanes {
            1 => Code::point(&coords, &[]),
            _ => Code::four(module, self.own.axis, &coords, &[], valid),
        };
        code.learn_from(module, row, self.own.axis);
        code
    }
}

/// The invocations of a workgroup.
fn workgroup(target: &Target, tuning: &Tuning) -> Result<u32, EmitError> {
    let tile = tile_of(tuning, "reduction", |tile| if let Tile::Reduction(tile) = tile { Some(tile) } else { None })?;
    threads(target, tile.map_or_else(|| suited_threads(target), |tile| tile.threads))
}

impl Scheduled for Bound<'_, Reduction> {
    /// Emits row reductions.
    fn emit(&self, mut module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let threads = workgroup(module.target, tuning)?;
        let (outer, columns) = columns(self, &module, threads)?;
        let mut row = Code::point(&Coords::default(), &[]);
        let coords = Coords::first(split_row(&mut module, &mut row, outer, "row", ""));
        let head = row.take();
        let mut row = Code::point(&coords, &[]);
        let body = match columns.steps {
            Some(steps) => unrolled(self, &columns, steps, &mut module, &mut row, &coords)?,
            None => looped(self, &columns, &mut module, &mut row, &coords)?,
        };
        let mut last = row.inner();
        for output in &self.row_outputs() {
            store_point(&mut last, &mut module, output)?;
        }
        let tail = match self.row_outputs().is_empty() {
            true => String::new(),
            false => format!("if (inside && thread == 0) {{\n{}}}\n", indented(&last.take())),
        };
        let combinations = combinations(self, &module)?;
        let widest = combinations.iter().map(Vec::len).max().unwrap_or(1);
        let combinations: Vec<_> = combinations.iter().map(|ops| combination(ops, widest)).collect();
        let rows = module.product(outer);
        let subgroup = module.target.subgroup_size;
        // For all subgroup sizes, a workgroup must consist of whole subgroups, and a subgroup of the threads of whole
        // rows.
        let shuffles = module.target.subgroups
            && subgroup.is_known()
            && (2..=subgroup.min as usize).contains(&columns.threads)
            && threads.is_multiple_of(subgroup.max);
        let variables = vec![
            ("row_threads", columns.threads.into()),
            ("combinations", Variable::from(combinations)),
            ("widest", vector_type(widest).into()),
            ("rows", rows.into()),
            ("shuffles", shuffles.into()),
            ("subgroup", subgroup.one().map_or_else(|| "subgroup_size".to_owned(), |size| format!("{size}u")).into()),
            ("with_subgroup_size", (shuffles && subgroup.one().is_none()).into()),
        ];
        let grid = vec![GridFactor::Tiles(outer.to_vec(), threads / columns.threads as u32)];
        let main = Main {
            threads,
            functions: String::new(),
            body: indented(&(head + &body + &tail)),
            variables,
            extension: None,
        };
        TEMPLATE.render(module, main, grid, vec![])
    }

    fn takes(&self, tile: &Tile) -> bool {
        matches!(tile, Tile::Reduction(_))
    }

    /// Workgroups of other sizes with the same number of threads per row, which determines the order of its sums.
    fn tiles(&self, target: &Target, _: &Tuning) -> Vec<Tile> {
        let (windows, own) = (BindingChunks::default(), &self.nest.body);
        let shared = |size| {
            let (_, columns) = columns(self, &Module::new(own, target, &windows), threads(target, size).ok()?).ok()?;
            Some(columns.threads)
        };
        let sizes = [32, 64, 128, 256, 512, 1024].into_iter();
        let alike = sizes.filter(|size| shared(*size) == shared(suited_threads(target)));
        alike.map(|threads| Tile::Reduction(ReductionTile { threads })).collect()
    }
}

/// The outer extents, and the columns of a row for a workgroup of `threads`.
fn columns<'k>(
    kernel: &'k Bound<'_, Reduction>,
    module: &Module,
    threads: u32,
) -> Result<(&'k [Dim], Shared<'k>), EmitError> {
    let Some((extent, outer)) = kernel.extents.split_last() else {
        return Err(EmitError::Missing { what: "extent", index: 0, count: 0 });
    };
    let roots: Vec<_> = kernel.reductions.iter().map(|r| r.value).collect();
    let wide = extent.as_const().is_none_or(|n| n >= 4)
        && vector_accesses(module.body, outer.len() as u8, &roots, &kernel.outputs()) > 0;
    Ok((outer, Shared::new(kernel, extent, if wide { 4 } else { 1 }, threads)))
}

fn name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "sum",
        ReduceOp::Max => "max",
        ReduceOp::Min => "min",
    }
}

/// Groups of reductions that do not depend on each other.
fn passes<'k>(kernel: &'k Bound<'_, Reduction>, module: &Module) -> Result<Vec<(usize, &'k [Reduced])>, EmitError> {
    let mut groups = vec![];
    let mut start = 0;
    for (n, reduction) in kernel.reductions.iter().enumerate() {
        float(module, "a reduction", reduction.value)?;
        let reads = module.body.dag.values(reduction.value);
        if (start..n).any(|earlier| reads >> earlier & 1 == 1) {
            groups.push((start, kernel.reductions.get(start..n).unwrap_or_default()));
            start = n;
        }
    }
    groups.push((start, kernel.reductions.get(start..).unwrap_or_default()));
    Ok(groups)
}

/// Largest number of reductions that are combined across threads at once.
const TOGETHER: usize = 4;

/// The distinct lists of operations that are combined at once.
fn combinations(kernel: &Bound<'_, Reduction>, module: &Module) -> Result<Vec<Vec<ReduceOp>>, EmitError> {
    let mut lists: Vec<Vec<ReduceOp>> = vec![];
    for (_, group) in passes(kernel, module)? {
        for together in group.chunks(TOGETHER) {
            let ops: Vec<_> = together.iter().map(|reduction| reduction.op).collect();
            if !lists.contains(&ops) {
                lists.push(ops);
            }
        }
    }
    Ok(lists)
}

fn vector_type(components: usize) -> String {
    if components == 1 { "f32".to_owned() } else { format!("vec{components}<f32>") }
}

/// The function that combines the results of some operations, for the template. Workgroup memory holds vectors with as
/// many components as the `widest` list.
fn combination(ops: &[ReduceOp], widest: usize) -> Variable {
    let components = components(ops.len());
    let join =
        |(op, component): (&ReduceOp, &&str)| Combine(*op).join(&format!("a{component}"), &format!("b{component}"));
    let joins: Vec<_> = ops.iter().zip(components).map(join).collect();
    let ty = vector_type(ops.len());
    let join = if ops.len() == 1 { joins.concat() } else { format!("{ty}({})", joins.join(", ")) };
    let (narrow, widen, end) = match widest.saturating_sub(ops.len()) {
        0 => ("", String::new(), String::new()),
        rest => (
            [".x", ".xy", ".xyz"][ops.len().min(3) - 1],
            format!("{}(", vector_type(widest)),
            ", 0.0f".repeat(rest) + ")",
        ),
    };
    let text = [
        ("name", combine(ops)),
        ("type", ty),
        ("join", join),
        ("narrow", narrow.to_owned()),
        ("widen", widen),
        ("end", end),
    ];
    Variable::from_pairs(text)
}

/// The component accessors of a value with this many components.
fn components(count: usize) -> &'static [&'static str] {
    match count {
        1 => &[""],
        2 => &[".x", ".y"],
        3 => &[".x", ".y", ".z"],
        _ => &[".x", ".y", ".z", ".w"],
    }
}

/// The name of the function that combines results of these operations.
pub(super) fn combine(ops: &[ReduceOp]) -> String {
    ops.iter().fold("combine".to_owned(), |name_, op| name_ + "_" + name(*op))
}

/// Evaluates expressions that do not depend on the column, once per row.
fn hoist(row: &mut Code, module: &mut Module, roots: &[ExprId], axis: u8) -> Result<(), EmitError> {
    let dag = &module.body.dag;
    let known = row.supplied_values();
    row.eval_where(module, roots, |id| dag.coords(id) >> axis & 1 == 0 && dag.values(id) & !known == 0)
}

/// Ends a pass: combines accumulators, from `total{start}` on, over the threads and provides the results.
fn conclude(row: &mut Code, module: &mut Module, columns: &Shared, (start, group): (usize, &[Reduced])) {
    let own = |(n, reduction): (usize, &Reduced)| match columns.own.lanes {
        1 => format!("total{}", start + n),
        _ => Combine(reduction.op).total(&format!("total{}", start + n)),
    };
    let own: Vec<_> = group.iter().enumerate().map(own).collect();
    for (together, own) in group.chunks(TOGETHER).zip(own.chunks(TOGETHER)) {
        let ops: Vec<_> = together.iter().map(|reduction| reduction.op).collect();
        let results = match columns.threads {
            1 => own.to_vec(),
            _ => {
                let (result, ty) = (module.name(), vector_type(ops.len()));
                let value = if ops.len() == 1 { own.concat() } else { format!("{ty}({})", own.join(", ")) };
                row.line(&format!("let {result} = {}(local, {value});", combine(&ops)));
                components(ops.len()).iter().map(|component| format!("{result}{component}")).collect()
            }
        };
        for result in results {
            let name = module.name();
            row.line(&format!("let {name} = {result};"));
            row.supply(WgslValue::Uniform(name));
        }
    }
}

fn filler(columns: &Shared, op: ReduceOp) -> String {
    let identity = Combine(op).identity();
    if columns.own.lanes == 1 { identity } else { format!("vec4<f32>({identity})") }
}

/// A loop over the columns for each pass.
fn looped(
    kernel: &Bound<'_, Reduction>,
    columns: &Shared,
    module: &mut Module,
    row: &mut Code,
    coords: &Coords,
) -> Result<String, EmitError> {
    let extent = module.dim(columns.own.extent);
    let head = format!(
        "for (var column = thread * {lanes}; column < {extent}; column += {})",
        columns.threads * columns.own.lanes,
        lanes = columns.own.lanes
    );
    let valid = format!("let valid = (column + vec4<i32>(0, 1, 2, 3)) < vec4<i32>({extent});");
    let open = |module: &mut Module, row: &Code| {
        let mut code = columns.code(module, row, coords, "column", (!columns.own.whole()).then_some("valid"));
        if !columns.own.whole() {
            code.line(&valid);
        }
        code
    };
    for (start, group) in passes(kernel, module)? {
        let roots: Vec<_> = group.iter().map(|r| r.value).collect();
        hoist(row, module, &roots, columns.own.axis)?;
        let mut inner = open(module, row);
        let values = inner.eval(module, &roots)?;
        for (n, (reduction, value)) in group.iter().zip(values).enumerate() {
            let total = format!("total{}", start + n);
            let identity = filler(columns, reduction.op);
            row.line(&format!("var {total} = {identity};"));
            let value = columns.own.text(&value);
            let value = if columns.own.whole() { value } else { format!("select({identity}, {value}, valid)") };
            inner.line(&format!("{total} = {};", columns.own.join(reduction.op, &total, &value)));
        }
        if !group.is_empty() {
            row.block(&head, &inner.take());
        }
        conclude(row, module, columns, (start, group));
    }
    if !kernel.outputs().is_empty() {
        let roots: Vec<_> = kernel.outputs().iter().flat_map(Output::roots).collect();
        hoist(row, module, &roots, columns.own.axis)?;
        let mut inner = open(module, row);
        columns.own.store(&mut inner, module, "column", &kernel.outputs())?;
        let body = format!("{head} {{\n{}}}\n", indented(&inner.take()));
        row.block("if (inside)", &body);
    }
    Ok(row.take())
}

/// Expressions of results that are evaluated early in kernels with random numbers: random numbers, their operations
/// with constants, and loads at the loop coordinates from tensors of the loop's shape, which are always in range.
fn early(kernel: &Bound<'_, Reduction>) -> Vec<ExprId> {
    let body = &kernel.nest.body;
    let roots: Vec<_> = kernel.outputs().iter().flat_map(Output::roots).collect();
    let parts = body.dag.reachable(&roots);
    let is_drawn = |id| matches!(body.dag.expr(id), Expr::Uniform { .. }) && body.dag.values(id) == 0;
    let is_constant = |id| matches!(body.dag.expr(id), Expr::Float(_));
    let is_own = |id: &ExprId| match body.dag.expr(*id) {
        Expr::Load { operand, index } => {
            let operand = body.operands.get(usize::from(*operand));
            let own = |(axis, at): (usize, &ExprId)| *body.dag.expr(*at) == Expr::Coord(axis as u8);
            operand.is_some_and(|operand| operand.shape == kernel.extents) && index.iter().enumerate().all(own)
        }
        Expr::Binary(_, a, b) => (is_drawn(*a) && is_constant(*b)) || (is_constant(*a) && is_drawn(*b)),
        _ => is_drawn(*id),
    };
    if parts.iter().any(|id| is_drawn(*id)) { parts.into_iter().filter(is_own).collect() } else { vec![] }
}

/// Evaluates the [`early`] expressions before any pass, after the loads of the passes have been issued.
fn begin_early(
    kernel: &Bound<'_, Reduction>,
    columns: &Shared,
    module: &mut Module,
    row: &mut Code,
    scopes: &mut [(Code, bool)],
) -> Result<(), EmitError> {
    let early = early(kernel);
    if early.is_empty() {
        return Ok(());
    }
    let elements: Vec<_> = kernel.reductions.iter().map(|r| r.value).collect();
    hoist(row, module, &early, columns.own.axis)?;
    let dag = &kernel.nest.body.dag;
    let loads = |id| matches!(dag.expr(id), Expr::Load { .. }) && dag.values(id) == 0;
    for (code, _) in scopes.iter_mut() {
        code.learn_from(module, row, columns.own.axis);
        code.eval_where(module, &elements, loads)?;
        row.append(&code.take());
    }
    for (code, _) in scopes.iter_mut() {
        code.eval(module, &early)?;
        row.append(&code.take());
    }
    Ok(())
}

/// Unrolled code for all columns of a thread: later passes reuse values of earlier passes in registers.
fn unrolled(
    kernel: &Bound<'_, Reduction>,
    columns: &Shared,
    steps: usize,
    module: &mut Module,
    row: &mut Code,
    coords: &Coords,
) -> Result<String, EmitError> {
    let width = columns.own.extent.as_const().unwrap_or(0);
    let groups = width.div_ceil(columns.own.lanes);
    let mut scopes = Vec::with_capacity(steps);
    for step in 0..steps {
        let (column, first) = (format!("column{step}"), step * columns.threads);
        let in_doubt = first + columns.threads > groups;
        let group = if first == 0 { "thread".to_owned() } else { format!("(thread + {first})") };
        let last = groups.saturating_sub(1);
        let group = if in_doubt { format!("min({group}, {last})") } else { group };
        row.line(&format!("let {column} = {group} * {};", columns.own.lanes));
        if in_doubt {
            row.line(&format!("let here{step} = thread + {first} < {groups};"));
        }
        let lanes = format!("({column} + vec4<i32>(0, 1, 2, 3)) < vec4<i32>({width})");
        let valid = (!columns.own.whole()).then(|| format!("valid{step}"));
        if let Some(valid) = &valid {
            row.line(&format!("let {valid} = {lanes};"));
        }
        scopes.push((columns.code(module, row, coords, &column, valid.as_deref()), in_doubt));
    }
    let empty = width == 0;
    if !empty {
        begin_early(kernel, columns, module, row, &mut scopes)?;
    }
    for (start, group) in passes(kernel, module)? {
        let roots: Vec<_> = group.iter().map(|r| r.value).collect();
        hoist(row, module, &roots, columns.own.axis)?;
        for (n, reduction) in group.iter().enumerate() {
            row.line(&format!("var total{} = {};", start + n, filler(columns, reduction.op)));
        }
        for (step, (code, in_doubt)) in scopes.iter_mut().enumerate().filter(|_| !empty) {
            code.learn_from(module, row, columns.own.axis);
            let values = code.eval(module, &roots)?;
            for (n, (reduction, value)) in group.iter().zip(values).enumerate() {
                let total = format!("total{}", start + n);
                let identity = filler(columns, reduction.op);
                let mut value = columns.own.text(&value);
                if !columns.own.whole() {
                    value = format!("select({identity}, {value}, valid{step})");
                }
                if *in_doubt {
                    value = format!("select({identity}, {value}, here{step})");
                }
                code.line(&format!("{total} = {};", columns.own.join(reduction.op, &total, &value)));
            }
            let text = code.take();
            row.append(&text);
        }
        conclude(row, module, columns, (start, group));
    }
    if !kernel.outputs().is_empty() && !empty {
        let roots: Vec<_> = kernel.outputs().iter().flat_map(Output::roots).collect();
        hoist(row, module, &roots, columns.own.axis)?;
        for (step, (code, in_doubt)) in scopes.iter_mut().enumerate() {
            code.learn_from(module, row, columns.own.axis);
            let mut inner = code.inner();
            columns.own.store(&mut inner, module, &format!("column{step}"), &kernel.outputs())?;
            let condition = if *in_doubt { format!("if (inside && here{step})") } else { "if (inside)".to_owned() };
            row.block(&condition, &inner.take());
        }
    }
    Ok(row.take())
}
