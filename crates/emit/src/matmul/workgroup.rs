//! Matmuls with workgroup-scope matrices, whose operands are stored tensors of f16 or of bytes, and whose results are stored f16
//! tensors.

use super::tensors::{Results, StoredMatrix, operand, results};
use super::{place, result_coords};
use crate::device_function::function;
use crate::expr::Code;
use crate::module::Module;
use crate::template::{Main, Template, template};
use crate::value::WgslValue;
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph::DType;
use rewire_graph_rewrite::device::{BindingSource, Extension, Target, WorkgroupProductTile};
use rewire_graph_rewrite::schedule::{Analysis, Bound, Product};

static TEMPLATE: Template = template!("matmul_workgroup.wgsl");

/// Depth from which larger tiles are faster, although they occupy more of a multiprocessor.
const LONG: usize = 1024;
/// The same of products of bytes.
const LONG_OF_INTEGERS: usize = 2048;

/// Smallest number of columns and smallest `k`.
const LEAST: [usize; 2] = [64, 32];

/// An alternative tile for a long `k` and a multiple of 256 columns. It is faster for numbers of rows for which the
/// default tile leaves most multiprocessors idle in the last wave.
const FLAT: WorkgroupProductTile = WorkgroupProductTile { rows: 96, columns: 256, depth: 64, threads: 256 };
/// Cost per element of this tile and of the default tile, as a ratio.
const FLAT_COST: [u64; 2] = [41, 40];

/// All tiles of f16, or of bytes if `integers` is set. Smaller tiles are faster with subgroup-scope matrices.
fn every(integers: bool) -> impl Iterator<Item = WorkgroupProductTile> {
    let steps_of = if integers { [32, 64, 128] } else { [16, 32, 64] };
    let extents = [FLAT.rows, 128, 256].into_iter().flat_map(|rows| [128, 256].map(|columns| (rows, columns)));
    let steps = extents.flat_map(move |extents| steps_of.map(|depth| (extents, depth)));
    steps.flat_map(|((rows, columns), depth)| {
        [128, 256].map(|threads| WorkgroupProductTile { rows, columns, depth, threads })
    })
}

/// The tiles that a matmul supports.
pub(super) fn tiles(kernel: &Bound<'_, Product>, target: &Target) -> Vec<WorkgroupProductTile> {
    every(kernel.accumulates_integers())
        .filter(|tile| WorkgroupMatmulTile::new(kernel, target, Some(*tile)).is_some())
        .collect()
}

/// The division of a matmul among workgroups.
pub(super) struct WorkgroupMatmulTile {
    tile: WorkgroupProductTile,
    size: u32,
    /// True for bytes.
    integers: bool,
    /// Columns of results, and steps of `k`.
    extents: [usize; 2],
    left: StoredMatrix,
    right: StoredMatrix,
    results: Vec<Results>,
}

impl WorkgroupMatmulTile {
    /// The tile for a matmul of tensors of f16 or of bytes, with f16 results; `None` if the matmul or the target does not support
    /// workgroup-scope matrices.
    pub fn new(kernel: &Bound<'_, Product>, target: &Target, wanted: Option<WorkgroupProductTile>) -> Option<Self> {
        let (n, k) = (kernel.n.as_const()?, kernel.k.dense()?.as_const()?);
        let is_plain = kernel.batch.is_empty() && kernel.stats.is_empty() && kernel.m.dense().is_some();
        let integers = kernel.accumulates_integers();
        let suits = match integers {
            true => target.multiplies_integers(),
            false => target.shares_matrices() && kernel.allows_f16_operands() && !kernel.accumulates_f16(),
        };
        if !is_plain || !suits {
            return None;
        }
        let dtype = if integers { DType::I8 } else { DType::F16 };
        let left = operand(kernel, dtype, kernel.a, (kernel.row(), kernel.depth)).filter(|left| !left.transposed)?;
        let right = operand(kernel, dtype, kernel.b, (kernel.depth, kernel.column()))?;
        let results = results(kernel, n)?;
        // Larger tiles leave no registers for residuals.
        let is_long = k >= LONG && k.is_multiple_of(64) && results.iter().all(|part| part.given.is_empty());
        let is_long = is_long && target.workgroup_matrices >= 256;
        let suited = match is_long && n.is_multiple_of(256) {
            true if integers && k >= LONG_OF_INTEGERS && k.is_multiple_of(128) => {
                WorkgroupProductTile { rows: 128, columns: 256, depth: 128, threads: 256 }
            }
            _ if integers => WorkgroupProductTile { rows: 128, columns: 128, depth: 64, threads: 128 },
            true => WorkgroupProductTile { rows: 128, columns: 256, depth: 64, threads: 256 },
            false => WorkgroupProductTile { rows: 128, columns: 128, depth: 32, threads: 128 },
        };
        let tile = wanted.unwrap_or(suited);
        let fits = every(integers).any(|known| known == tile) && n >= LEAST[0] && k >= LEAST[1];
        let fits = fits && tile.threads <= target.workgroup_matrices;
        // All columns of a tile belong to the same tensors.
        let ends_tile = |column: usize| column == n || column.is_multiple_of(tile.columns as usize);
        let fits = fits && results.iter().all(|part| ends_tile(part.start) && ends_tile(part.end));
        fits.then_some(Self { tile, size: target.matrix, integers, extents: [n, k], left, right, results })
    }

    /// True if each of its tensors is one binding.
    pub fn holds(&self, module: &Module) -> bool {
        let slots = self.operands().map(|operand| BindingSource::Operand(operand.position));
        let results = self.results.iter().map(|part| BindingSource::Output(part.tensor.position));
        slots.chain(results).all(|slot| module.windows_of(slot) == 1)
    }

    /// All tensors that are loaded as tiles.
    fn operands(&self) -> impl Iterator<Item = StoredMatrix> + '_ {
        let given = self.results.iter().flat_map(|part| &part.given);
        [self.left, self.right].into_iter().chain(given.map(|(_, given)| *given))
    }

    /// The alternative tile, if all multiprocessors together finish a result of these rows and columns sooner with it.
    pub fn in_less_time(
        &self,
        kernel: &Bound<'_, Product>,
        target: &Target,
        [rows, columns]: [u64; 2],
    ) -> Option<WorkgroupProductTile> {
        let k = kernel.k.dense()?.as_const()?;
        let multiprocessors = u64::from(target.multiprocessors);
        let may_be_flat =
            !self.integers && multiprocessors > 0 && k >= LONG && k.is_multiple_of(64) && columns.is_multiple_of(256);
        if !may_be_flat {
            return None;
        }
        let flat = Self::new(kernel, target, Some(FLAT))?;
        let time = |tile: &Self| {
            let [m, n] = [tile.tile.rows, tile.tile.columns].map(u64::from);
            // Two workgroups of 128 threads share a multiprocessor.
            let at_once = u64::from(256 / tile.tile.threads).max(1);
            let tiles = rows.div_ceil(m).saturating_mul(columns.div_ceil(n));
            tiles.div_ceil(at_once.saturating_mul(multiprocessors)).saturating_mul(at_once * m * n)
        };
        let [more, less] = FLAT_COST;
        (time(&flat).saturating_mul(more) < time(self).saturating_mul(less)).then_some(FLAT)
    }

    /// Rows and columns per workgroup.
    pub fn shape(&self) -> (u32, u32) {
        (self.tile.rows, self.tile.columns)
    }
}

/// Emits a matmul with workgroup-scope matrices.
pub(super) fn emit(
    kernel: &Bound<'_, Product>,
    tile: &WorkgroupMatmulTile,
    mut module: Module,
) -> Result<ParsedKernel, EmitError> {
    tile.operands().for_each(|operand| module.note_tensor(operand.position));
    module.note_f16();
    let mut functions = String::new();
    for part in &tile.results {
        module.note_tensor_result(part.tensor.position, DType::F16);
        functions += &finish(kernel, part, &mut module)?;
    }
    let (body, grid, tile_lists) = place(kernel, tile.shape(), &mut module)?;
    let WorkgroupProductTile { rows: tile_m, columns: tile_n, depth: tile_k, threads } = tile.tile;
    let (n, [width, k]) = (module.dim(&kernel.n), tile.extents);
    let variables = vec![
        ("size", tile.size.into()),
        ("integers", tile.integers.into()),
        ("tile_m", tile_m.into()),
        ("tile_n", tile_n.into()),
        ("tile_k", tile_k.into()),
        ("n", n.into()),
        ("n_width", width.into()),
        ("k", k.into()),
        ("left", tensor(tile.left)),
        ("right", tensor(tile.right)),
        (
            "results",
            tile.results.iter().map(|part| described(part, part.end - part.start == width)).collect::<Vec<_>>().into(),
        ),
    ];
    let extension = Some(Extension::Workgroup { tile: [tile_m, tile_n, tile_k] });
    let main = Main { threads, functions, body, variables, extension };
    TEMPLATE.render(module, main, grid, tile_lists)
}

/// The device function that computes a result from an accumulator.
fn finish(kernel: &Bound<'_, Product>, part: &Results, module: &mut Module) -> Result<String, EmitError> {
    let coords = result_coords(kernel);
    let mut code = Code::point(&coords, &[(kernel.sum(), WgslValue::Uniform("sum".to_owned()))]);
    for (number, (load, _)) in part.given.iter().enumerate() {
        code.learn(*load, WgslValue::Uniform(format!("given{number}")));
    }
    let value = code.eval_one(module, part.value)?.first();
    code.line(&format!("return {value};"));
    let more: String = (0..part.given.len()).map(|number| format!(", given{number}: f32")).collect();
    Ok(function(&format!("finish{}", part.tensor.position), &coords, &format!(", sum: f32{more}"), "f32", &code.take()))
}

fn tensor(of: StoredMatrix) -> Variable {
    let [position, pitch] = [usize::from(of.position), of.pitch].map(Variable::from);
    Variable::from_pairs([("position", position), ("pitch", pitch), ("transposed", of.transposed.into())])
}

fn described(part: &Results, whole: bool) -> Variable {
    Variable::from_pairs([
        ("tensor", tensor(part.tensor)),
        ("start", part.start.into()),
        ("end", part.end.into()),
        ("whole", whole.into()),
        ("given", part.given.iter().map(|(_, given)| tensor(*given)).collect::<Vec<_>>().into()),
    ])
}
