//! The grid of pairs of rows and keys, for every sample and head.

use super::coords::Coords;
use super::device_function::function;
use super::expr::{Code, indented};
use super::interval::{Pair, TileState, tile_state};
use super::matmul::{place_in_list, row_count};
use super::module::Module;
use super::template::{Main, Template};
use super::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph::{Dim, Scalar};
use rewire_graph_rewrite::device::{Extension, GridFactor, TileList};
use rewire_graph_rewrite::plan::Extent;

/// Pairs of the rows and keys of every sample and head. Results have one entry per row.
pub(super) struct PairGrid<'k> {
    pub samples: &'k [Dim],
    pub heads: usize,
    pub head: Option<u8>,
    pub pair: Pair,
    pub rows: &'k Extent,
    pub keys: &'k Extent,
    /// The mask of pairs; all pairs if `None`.
    pub mask: Option<ExprId>,
}

/// A template for pairs with its variables.
pub(super) struct PairTemplate {
    pub template: &'static Template,
    pub threads: u32,
    /// Rows per workgroup.
    pub rows: u32,
    /// Expressions of the device functions.
    pub roots: Vec<ExprId>,
    /// The extension, missing from WGSL, that the template uses.
    pub extension: Option<Extension>,
    pub variables: Vec<(&'static str, Variable)>,
}

impl PairGrid<'_> {
    /// Renders a template with its common variables: device functions, the position in the grid, and the mask.
    pub fn fill(
        &self,
        mut module: Module,
        template: PairTemplate,
        functions: impl FnOnce(&mut Module) -> Result<String, EmitError>,
    ) -> Result<ParsedKernel, EmitError> {
        let mut code = Code::point(&self.entry(&mut module), &[]);
        place_in_list(&mut module, &mut code, "tile", "i0")?;
        self.compute_once(&mut module, &mut code, &template.roots)?;
        let functions = functions(&mut module)?;
        let entry = self.entry(&mut module);
        let state = self.mask.map(|mask| {
            truth(&module, mask).and_then(|()| tile_state(&mut module, code.inner(), entry, self.pair, mask))
        });
        let state = state.transpose()?;
        for (name, range) in [("rows", self.rows), ("keys", self.keys)] {
            let count = row_count(&mut module, range)?;
            code.line(&format!("let {name} = {count};"));
        }
        let block = |text: Option<&str>, depth: usize| {
            let mut text = text.unwrap_or_default().to_owned();
            (0..depth).for_each(|_| text = indented(&text));
            Variable::from(text.trim_end().to_owned())
        };
        let part = |f: fn(&TileState) -> &str| state.as_ref().map(f);
        let every = "let possible = true;\nlet always = true;\n";
        let mut variables = template.variables;
        variables.extend([
            ("rows", Variable::from(template.rows)),
            ("heads", self.heads.into()),
            ("masked", state.is_some().into()),
            ("row_bounds", state.as_ref().map_or(0, |state| state.row_bounds).into()),
            ("row_statements", block(part(|state| &state.rows), 2)),
            ("exact_statements", block(part(|state| &state.exact), 1)),
            ("wraps", Variable::from(part(|state| &state.wraps).unwrap_or_default())),
            ("tile_statements", block(part(|state| &state.tile).or(Some(every)), 2)),
        ]);
        let list = TileList {
            samples: self.samples.to_vec(),
            rows: self.rows.clone(),
            tile: template.rows,
            longest_first: true,
        };
        let grid = vec![GridFactor::TileList(0), GridFactor::Tiles(vec![self.heads.into()], 1)];
        let (threads, extension) = (template.threads, template.extension);
        let main = Main { threads, functions, body: indented(&code.take()), variables, extension };
        template.template.render(module, main, grid, vec![list])
    }

    /// The device function that returns, as a `vec4<bool>`, whether each of four keys that are `inside` is included by
    /// the mask. The first key is at `pair`. Empty without a mask.
    pub fn keep(&self, module: &mut Module, pair: &Coords) -> Result<String, EmitError> {
        let Some(mask) = self.mask else { return Ok(String::new()) };
        truth(module, mask)?;
        let mut code = Code::four(module, self.pair.key, pair, &[], Some("inside"));
        let kept = code.eval_one(module, mask)?.vector(Scalar::Bool);
        code.line(&format!("return {kept};"));
        Ok(function("keep", pair, ", inside: vec4<bool>", "vec4<bool>", &code.take()))
    }

    /// The device function that returns whether the mask includes a pair; empty without a mask.
    pub fn keep_one(&self, module: &mut Module, pair: &Coords) -> Result<String, EmitError> {
        let Some(mask) = self.mask else { return Ok(String::new()) };
        truth(module, mask)?;
        let mut code = Code::point(pair, &[]);
        let kept = code.eval_one(module, mask)?.first();
        code.line(&format!("return {kept};"));
        Ok(function("keep", pair, "", "bool", &code.take()))
    }

    /// The coordinates of a sample, `c0`, and a head, `c1`.
    pub fn entry(&self, module: &mut Module) -> Coords {
        let single = (self.samples.len() == 1).then_some(0);
        let mut coords = Coords::default().with(single, "c0").with(self.head, "c1");
        let mut rest = "c0".to_owned();
        for (axis, dim) in self.samples.iter().enumerate().filter(|_| single.is_none()).rev() {
            let extent = module.dim(dim);
            coords = coords.derived(axis as u8, format!("i32(u32({rest}) % max(u32({extent}), 1u))"));
            rest = format!("i32(u32({rest}) / max(u32({extent}), 1u))");
        }
        coords
    }

    /// Evaluates expressions that depend only on sample and head once in the entry point, since device functions run
    /// for every pair.
    fn compute_once(&self, module: &mut Module, code: &mut Code, roots: &[ExprId]) -> Result<(), EmitError> {
        let entry = (0..self.samples.len() as u8).chain(self.head).fold(0, |bits, axis| bits | 1u32 << axis);
        let dag = &module.body.dag;
        let reads = |id: &ExprId| matches!(dag.expr(*id), Expr::Load { .. } | Expr::Sample { .. });
        let fixed = |id: &ExprId| dag.coords(*id) & !entry == 0 && dag.values(*id) == 0;
        let once: Vec<ExprId> = module.required(roots).into_iter().filter(|id| reads(id) && fixed(id)).collect();
        for id in once {
            let value = code.eval_one(module, id)?.first();
            let variable = module.compute_once(id);
            code.line(&format!("{variable} = {value};"));
        }
        Ok(())
    }
}

/// Fails if the mask is not a bool.
fn truth(module: &Module, mask: ExprId) -> Result<(), EmitError> {
    match module.body.dag.scalar(mask) {
        Scalar::Bool => Ok(()),
        got => Err(EmitError::Type { place: "the mask".to_owned(), expected: "Bool".to_owned(), got }),
    }
}
