//! One dot product and one sum: attention.

mod cooperative;
mod plain;

use super::frame;
use crate::checked::Checked;
use crate::coords::Coords;
use crate::expr::Code;
use crate::frame::Variant;
use crate::hook::{Element, Four, elements, finish, float, function};
use crate::module::Module;
use crate::template::Template;
use crate::value::Emitted;
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph::{Dim, Scalar};
use rewire_graph_rewrite::device::{Extension, Target, Tuning};
use rewire_graph_rewrite::schedule::{self, Bound, Pairs};
use std::ops::Deref;

/// Pairs of one dot product and one sum, with these.
#[derive(Clone, Copy)]
pub(super) struct Attention<'k> {
    kernel: Bound<'k, Pairs>,
    parts: schedule::Attention<'k>,
}

impl<'k> Attention<'k> {
    pub fn of(kernel: &Bound<'k, Pairs>) -> Option<Self> {
        Some(Self { kernel: *kernel, parts: kernel.schedule.attention()? })
    }
}

impl<'k> Deref for Attention<'k> {
    type Target = Bound<'k, Pairs>;

    fn deref(&self) -> &Bound<'k, Pairs> {
        &self.kernel
    }
}

/// The tile of attention on cooperative matrices; `None` for attention of multiply-adds.
fn cooperative_tile(
    kernel: &Attention<'_>,
    target: &Target,
    tuning: &Tuning,
) -> Result<Option<cooperative::CooperativeAttentionTile>, EmitError> {
    tuning.cooperative(|| cooperative::CooperativeAttentionTile::new(kernel, target, tuning))
}

/// Workgroups below which a GPU is not occupied.
const FEW_WORKGROUPS: u64 = 96;

/// Workgroups from which on it runs some after others.
const MANY_WORKGROUPS: u64 = 512;

impl Attention<'_> {
    pub fn emit(&self, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        match cooperative_tile(self, module.target, tuning)? {
            Some(tile) => cooperative::emit(self, &tile, module),
            None => plain::emit(self, module, tuning),
        }
    }

    pub fn candidates(&self, target: &Target, base: &Tuning) -> Vec<Tuning> {
        if base.matrices == Some(true) {
            return cooperative::candidates(target.matrix);
        }
        [1, 2, 4, 8].map(|rows| Tuning { rows_per_thread: Some(rows), ..Tuning::default() }).into()
    }

    /// Fewer queries a workgroup, and a subgroup or thread, where there are few. Of cooperative matrices, more keys a tile.
    pub fn suited(&self, tuning: Tuning, target: &Target, size: &dyn Fn(&Dim) -> Option<u64>) -> Tuning {
        if tuning.rows.is_some() || tuning.rows_per_thread.is_some() {
            return tuning;
        }
        let Ok(cooperative) = cooperative_tile(self, target, &tuning) else { return tuning };
        let fewer = Tuning { rows_per_thread: Some(1), ..tuning };
        let rows = self.nest.outputs.first().and_then(|output| size(output.shape.first()?));
        let samples = self.samples.iter().map(size).try_fold(1u64, |all, count| Some(all.saturating_mul(count?)));
        let (Some(rows), Some(samples)) = (rows, samples) else { return tuning };
        let choices = match (cooperative, plain::AttentionTile::new(self, target, &tuning)) {
            (Some(tile), _) => {
                let of = |rows: u32, keys: u32| {
                    let columns = tuning.columns.or(Some(keys * target.matrix));
                    (rows, Tuning { rows: Some(rows), columns, ..fewer })
                };
                let is_short = tile.in_registers() && rows <= samples.saturating_mul(u64::from(tile.fewer_rows() / 2));
                let is_many = samples.saturating_mul(self.heads as u64) >= MANY_WORKGROUPS;
                let whole = match is_short {
                    true if is_many => of(tile.fewer_rows() / 2, 1),
                    // Subgroups without queries load keys for the others.
                    true => of(tile.fewer_rows(), 2),
                    false => (tile.rows(), tuning),
                };
                let smaller = [of(tile.rows() / 2, 2), of(tile.fewer_rows() / 2, 2), of(2 * target.matrix, 4)];
                // More keys a tile take more workgroup memory.
                let fits = |(_, choice): &(u32, Tuning)| matches!(cooperative_tile(self, target, choice), Ok(Some(_)));
                [whole].into_iter().chain(smaller).filter(fits).collect()
            }
            (None, Ok(tile)) => vec![(tile.rows(), tuning), (tile.rows(), fewer)],
            (None, Err(_)) => return tuning,
        };
        let occupies = |(tile, _): &&(u32, Tuning)| {
            let tiles = (rows / u64::from(*tile)).saturating_add(samples);
            tiles.saturating_mul(self.heads as u64) >= FEW_WORKGROUPS
        };
        choices.iter().find(occupies).or(choices.last()).map_or(tuning, |(_, choice)| *choice)
    }

    pub fn is_cooperative(&self, target: &Target, tuning: &Tuning) -> bool {
        matches!(cooperative_tile(self, target, tuning), Ok(Some(_)))
    }
}

/// True if a score reads memory by its row or key, which a mask may keep within bounds.
fn reads_pairs(kernel: &Attention<'_>) -> bool {
    let row_and_key = 1u32 << kernel.owner | 1 << kernel.other;
    let dag = &kernel.nest.body.dag;
    let reads = |id: &ExprId| matches!(dag.expr(*id), Expr::Load { .. } | Expr::Sample { .. } | Expr::Call { .. });
    dag.reachable(&[kernel.parts.sum.weight]).iter().any(|id| reads(id) && dag.coords(*id) & row_and_key != 0)
}

/// How many scores a hook takes.
#[derive(Clone, Copy)]
enum Score {
    /// Those of four neighbouring keys.
    Four,
    /// One.
    Element,
}

/// A template of attention, and what is its own.
struct AttentionVariant {
    template: &'static Template,
    threads: u32,
    /// Of queries, keys and values.
    element: Element,
    score: Score,
    /// Queries of a workgroup.
    rows: u32,
    variables: Vec<(&'static str, Variable)>,
}

/// Fills a template with what the templates share.
fn fill(kernel: &Attention<'_>, module: Module, variant: AttentionVariant) -> Result<ParsedKernel, EmitError> {
    let AttentionVariant { template, threads, element, score, rows, mut variables } = variant;
    variables.extend([("qk_width", kernel.parts.dot.width.into()), ("v_width", kernel.parts.element.width.into())]);
    let roots = [kernel.parts.dot.owner, kernel.parts.dot.other, kernel.parts.element.value, kernel.parts.sum.weight]
        .into_iter()
        .chain(kernel.mask)
        .collect();
    let extension = match score {
        Score::Four => None,
        Score::Element => Some(Extension::Elements),
    };
    let shared = Variant { template, threads, rows, roots, extension, variables };
    frame(kernel).fill(module, shared, |module| hooks(kernel, module, (element, score)))
}

fn hooks(kernel: &Attention<'_>, module: &mut Module, (element, score): (Element, Score)) -> Result<String, EmitError> {
    let entry = frame(kernel).entry(module);
    let point = |row: (u8, &str), last: (u8, &str)| entry.clone().with(row.0, row.1).with(last.0, last.1);
    let (query, key) = ((kernel.owner, "i"), (kernel.other, "j"));
    let (qk, v) = (Dim::from(kernel.parts.dot.width), Dim::from(kernel.parts.element.width));
    let mut text = String::new();
    for (name, row, axis, extent, root) in [
        ("query", query, kernel.parts.dot.depth, &qk, kernel.parts.dot.owner),
        ("key", key, kernel.parts.dot.depth, &qk, kernel.parts.dot.other),
        ("value", key, kernel.parts.element.column, &v, kernel.parts.element.value),
    ] {
        let four = Four { coords: &point(row, (axis, "d")), axis, extent };
        text += &elements(name, module, &four, (&[], ""), (root, element, ""))?;
    }
    float(module, "the score", kernel.parts.sum.weight)?;
    text += &match score {
        Score::Four => scores_of_four(kernel, module, &point(query, key))?,
        Score::Element => scores_of_one(kernel, module, &point(query, key))?,
    };
    let four = Four {
        coords: &point(query, (kernel.parts.element.column, "d")),
        axis: kernel.parts.element.column,
        extent: &v,
    };
    Ok(text + &finish(module, &four, kernel.parts.sum.value, &kernel.nest.outputs)?)
}

/// The weight, or the score of a softmax, of a pair that does not count.
fn filler(kernel: &Attention<'_>) -> &'static str {
    if kernel.softmax { "LOWEST" } else { "0.0f" }
}

/// Hooks that tell which of four neighbouring keys count, and what they weigh.
fn scores_of_four(kernel: &Attention<'_>, module: &mut Module, pair: &Coords) -> Result<String, EmitError> {
    let keep = frame(kernel).keep(module, pair)?;
    let mut code = Code::four(
        module,
        kernel.other,
        pair,
        &[(kernel.parts.dot.value, Emitted::Vector("product".to_owned()))],
        Some("kept"),
    );
    let weight = code.eval_one(module, kernel.parts.sum.weight)?.vector(Scalar::F32);
    code.line(&format!("return select(vec4<f32>({}), {weight}, kept);", filler(kernel)));
    Ok(keep + &function("weigh", pair, ", product: vec4<f32>, kept: vec4<bool>", "vec4<f32>", &code.take()))
}

/// Hooks that tell whether a pair counts, and what it weighs.
fn scores_of_one(kernel: &Attention<'_>, module: &mut Module, pair: &Coords) -> Result<String, EmitError> {
    let keep = frame(kernel).keep_one(module, pair)?;
    let mut code = Code::point(pair, &[(kernel.parts.dot.value, Emitted::Uniform("product".to_owned()))]);
    code.restrict("kept".to_owned());
    let weight = code.eval_one(module, kernel.parts.sum.weight)?.first();
    code.line(&format!("return select({}, {weight}, kept);", filler(kernel)));
    Ok(keep + &function("weigh", pair, ", product: f32, kept: bool", "f32", &code.take()))
}
