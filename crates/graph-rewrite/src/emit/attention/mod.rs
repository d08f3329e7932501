//! Jagged attention: on cooperative matrices where the target has them and the operands are halves, else by multiply-add.

mod cooperative;
mod plain;

use super::coords::Coords;
use super::expr::{Scope, indented};
use super::hook::{Element, Four, elements, finish, float, function};
use super::interval::{Pair, TileState, tile_state};
use super::matmul::{place_in_list, row_count};
use super::module::Module;
use super::template::{Main, render};
use super::value::Value;
use super::{EmitError, GridFactor, ParsedKernel, Target, TileList, Tuning};
use crate::schedule::Attention;
use minijinja::Value as Variable;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph::{Dim, Scalar};

/// Emits jagged attention.
pub(super) fn emit(kernel: &Attention<'_>, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
    match cooperative_tile(kernel, module.target, tuning)? {
        Some(tile) => cooperative::emit(kernel, &tile, module),
        None => plain::emit(kernel, module, tuning),
    }
}

/// The tile of attention on cooperative matrices; `None` for attention of multiply-adds.
fn cooperative_tile(
    kernel: &Attention<'_>,
    target: &Target,
    tuning: &Tuning,
) -> Result<Option<cooperative::Tile>, EmitError> {
    tuning.cooperative(|| cooperative::Tile::new(kernel, target, tuning))
}

/// True if attention runs on cooperative matrices.
pub(super) fn is_cooperative(kernel: &Attention<'_>, target: &Target, tuning: &Tuning) -> bool {
    matches!(cooperative_tile(kernel, target, tuning), Ok(Some(_)))
}

/// Workgroups below which a GPU is not occupied.
const FEW_WORKGROUPS: u64 = 96;

/// Fewer queries a workgroup, and a subgroup or thread, where there are few. Of cooperative matrices, more keys a tile.
pub(super) fn suited(
    tuning: Tuning,
    kernel: &Attention<'_>,
    target: &Target,
    size: impl Fn(&Dim) -> Option<u64>,
) -> Tuning {
    let Ok(cooperative) = cooperative_tile(kernel, target, &tuning) else { return tuning };
    let fewer = Tuning { rows_per_thread: Some(1), ..tuning };
    let choices = match (cooperative, plain::Tile::new(kernel, target, &tuning)) {
        (Some(tile), _) => {
            let of = |rows: u32, keys: u32| {
                let columns = tuning.columns.or(Some(keys * target.matrix));
                (rows, Tuning { rows: Some(rows), columns, ..fewer })
            };
            let smaller = [of(tile.rows() / 2, 2), of(2 * target.matrix, 4)];
            // More keys a tile take more workgroup memory.
            let fits = |(_, choice): &(u32, Tuning)| matches!(cooperative_tile(kernel, target, choice), Ok(Some(_)));
            std::iter::once((tile.rows(), tuning)).chain(smaller.into_iter().filter(fits)).collect()
        }
        (None, Ok(tile)) => vec![(tile.rows(), tuning), (tile.rows(), fewer)],
        (None, Err(_)) => return tuning,
    };
    let rows = kernel.nest.outputs.first().and_then(|output| size(output.shape.first()?));
    let samples = kernel.samples.iter().map(&size).try_fold(1u64, |all, count| Some(all.saturating_mul(count?)));
    let (Some(rows), Some(samples)) = (rows, samples) else { return tuning };
    let occupies = |(tile, _): &&(u32, Tuning)| {
        let tiles = (rows / u64::from(*tile)).saturating_add(samples);
        tiles.saturating_mul(kernel.heads as u64) >= FEW_WORKGROUPS
    };
    choices.iter().find(occupies).or(choices.last()).map_or(tuning, |(_, choice)| *choice)
}

/// True if a score reads memory by its row or key, which a mask may keep within bounds.
fn reads_pairs(kernel: &Attention<'_>) -> bool {
    let row_and_key = 1u32 << kernel.row | 1 << kernel.key;
    let dag = &kernel.nest.body.dag;
    let reads = |id: &ExprId| matches!(dag.expr(*id), Expr::Load { .. } | Expr::Sample { .. } | Expr::Call { .. });
    dag.reachable(&[kernel.score]).iter().any(|id| reads(id) && dag.coords(*id) & row_and_key != 0)
}

/// A template of attention, and what is its own.
struct Variant {
    name: &'static str,
    threads: u32,
    /// Of queries, keys and values.
    element: Element,
    /// Queries of a workgroup.
    rows: u32,
    variables: Vec<(&'static str, Variable)>,
}

/// Fills a template with what the templates share: functions of the kernel's own, its place in the grid, its mask.
fn fill(kernel: &Attention<'_>, mut module: Module, variant: Variant) -> Result<ParsedKernel, EmitError> {
    let mut scope = Scope::point(&entry(kernel, &mut module), &[]);
    place_in_list(&mut module, &mut scope, "tile", "i0")?;
    compute_once(kernel, &mut module, &mut scope)?;
    let hooks = hooks(kernel, &mut module, variant.element)?;
    let (entry, pair) = (entry(kernel, &mut module), Pair { row: kernel.row, key: kernel.key });
    let state = kernel.mask.map(|mask| truth(&module, mask).and_then(|()| tile_state(&mut module, entry, pair, mask)));
    let state = state.transpose()?;
    for (name, range) in [("rows", kernel.rows), ("keys", kernel.keys)] {
        let count = row_count(&mut module, range)?;
        scope.line(&format!("let {name} = {count};"));
    }
    let block = |text: Option<&str>, depth: usize| {
        let mut text = text.unwrap_or_default().to_owned();
        (0..depth).for_each(|_| text = indented(&text));
        Variable::from(text.trim_end().to_owned())
    };
    let part = |f: fn(&TileState) -> &str| state.as_ref().map(f);
    let every = "let possible = true;\nlet always = true;\n";
    let mut variables = variant.variables;
    variables.extend([
        ("rows", Variable::from(variant.rows)),
        ("heads", kernel.heads.into()),
        ("qk_width", kernel.qk_width.into()),
        ("v_width", kernel.v_width.into()),
        ("masked", state.is_some().into()),
        ("row_bounds", state.as_ref().map_or(0, |state| state.row_bounds).into()),
        ("row_statements", block(part(|state| &state.rows), 2)),
        ("exact_statements", block(part(|state| &state.exact), 1)),
        ("wraps", Variable::from(part(|state| &state.wraps).unwrap_or_default())),
        ("tile_statements", block(part(|state| &state.tile).or(Some(every)), 2)),
    ]);
    let list = TileList {
        samples: kernel.samples.clone(),
        rows: kernel.rows.clone(),
        tile: variant.rows,
        longest_first: true,
    };
    let grid = vec![GridFactor::TileList(0), GridFactor::Tiles(vec![kernel.heads.into()], 1)];
    let main = Main { threads: variant.threads, hooks, body: indented(&scope.take()), variables };
    render(variant.name, module, main, grid, vec![list])
}

/// The coordinates of a sample, `c0`, and a head, `c1`.
fn entry(kernel: &Attention<'_>, module: &mut Module) -> Coords {
    let single = (kernel.samples.len() == 1).then_some(0);
    let mut coords = Coords::default().with(single, "c0").with(kernel.head, "c1");
    let mut rest = "c0".to_owned();
    for (axis, dim) in kernel.samples.iter().enumerate().filter(|_| single.is_none()).rev() {
        let extent = module.dim(dim);
        coords = coords.derived(axis as u8, format!("i32(u32({rest}) % max(u32({extent}), 1u))"));
        rest = format!("i32(u32({rest}) / max(u32({extent}), 1u))");
    }
    coords
}

/// Reads what is the same for a whole sample and head before the hooks, which run for every pair, do.
fn compute_once(kernel: &Attention<'_>, module: &mut Module, scope: &mut Scope) -> Result<(), EmitError> {
    let varies = [kernel.row, kernel.key, kernel.column, kernel.depth].iter().fold(0, |bits, axis| bits | 1u32 << axis);
    let roots: Vec<ExprId> = [kernel.q, kernel.k, kernel.v, kernel.score].into_iter().chain(kernel.mask).collect();
    let dag = &module.body.dag;
    let reads = |id: &ExprId| matches!(dag.expr(*id), Expr::Load { .. } | Expr::Sample { .. });
    let fixed = |id: &ExprId| dag.coords(*id) & varies == 0 && dag.values(*id) == 0;
    let once: Vec<ExprId> = module.required(&roots).into_iter().filter(|id| reads(id) && fixed(id)).collect();
    for id in once {
        let value = scope.eval_one(module, id)?.first();
        let variable = module.compute_once(id);
        scope.line(&format!("{variable} = {value};"));
    }
    Ok(())
}

fn hooks(kernel: &Attention<'_>, module: &mut Module, element: Element) -> Result<String, EmitError> {
    let entry = entry(kernel, module);
    let point = |row: (u8, &str), last: (u8, &str)| entry.clone().with(row.0, row.1).with(last.0, last.1);
    let (query, key) = ((kernel.row, "i"), (kernel.key, "j"));
    let (qk, v) = (Dim::from(kernel.qk_width), Dim::from(kernel.v_width));
    let mut text = String::new();
    for (name, row, axis, extent, root) in [
        ("query", query, kernel.depth, &qk, kernel.q),
        ("key", key, kernel.depth, &qk, kernel.k),
        ("value", key, kernel.column, &v, kernel.v),
    ] {
        let four = Four { coords: &point(row, (axis, "d")), axis, extent };
        text += &elements(name, module, &four, (&[], ""), (root, element, ""))?;
    }
    let pair = point(query, key);
    if let Some(mask) = kernel.mask {
        truth(module, mask)?;
        let mut scope = Scope::four(module, kernel.key, &pair, &[], Some("inside"));
        let kept = scope.eval_one(module, mask)?.vector(Scalar::Bool);
        scope.line(&format!("return {kept};"));
        text += &function("keep", &pair, ", inside: vec4<bool>", "vec4<bool>", &scope.take());
    }
    float(module, "the score", kernel.score)?;
    let mut scope = Scope::four(module, kernel.key, &pair, &[(0, Value::Vector("product".to_owned()))], Some("kept"));
    let weight = scope.eval_one(module, kernel.score)?.vector(Scalar::F32);
    let filler = if kernel.softmax { "LOWEST" } else { "0.0f" };
    scope.line(&format!("return select(vec4<f32>({filler}), {weight}, kept);"));
    text += &function("weigh", &pair, ", product: vec4<f32>, kept: vec4<bool>", "vec4<f32>", &scope.take());
    let four = Four { coords: &point(query, (kernel.column, "d")), axis: kernel.column, extent: &v };
    Ok(text + &finish(module, &four, kernel.sum(), &kernel.nest.outputs)?)
}

/// Errors where the mask is no truth value.
fn truth(module: &Module, mask: ExprId) -> Result<(), EmitError> {
    match module.body.dag.scalar(mask) {
        Scalar::Bool => Ok(()),
        got => Err(EmitError::Type { place: "the mask".to_owned(), expected: "Bool".to_owned(), got }),
    }
}
