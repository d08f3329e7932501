//! Products of matrices that a whole workgroup shares, where operands and results are tensors of halves as they are stored.

use super::{place, result_coords};
use crate::emit::expr::Code;
use crate::emit::hook::function;
use crate::emit::module::Module;
use crate::emit::template::{Main, Template, template};
use crate::emit::value::Emitted;
use crate::emit::{EmitError, Extension, ParsedKernel, Slot, Target, Tuning};
use crate::plan::{MemorySpace, Output};
use crate::schedule::Product;
use minijinja::Value as Variable;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph::{DType, Dim};

static TEMPLATE: Template = template!("matmul_workgroup.wgsl");

/// Elements of a row whose beginnings lie on the 16 bytes that the hardware loads at once.
const ALIGNED: usize = 8;

/// Lengths of sums from which on larger tiles pay for what they take of the multiprocessors.
const LONG: usize = 1024;

/// A tensor of halves with two dimensions.
#[derive(Clone, Copy)]
struct Halves {
    /// The operand or the output.
    position: u16,
    /// Elements from a row to the next.
    pitch: usize,
    /// Its rows are columns of the product.
    transposed: bool,
}

/// How a product is divided among workgroups.
pub(super) struct WorkgroupMatmulTile {
    /// Rows, columns and steps of `k`.
    tile: [u32; 3],
    threads: u32,
    size: u32,
    left: Halves,
    right: Halves,
    result: Halves,
    /// What results take element by element, such as residuals.
    given: Vec<(ExprId, Halves)>,
}

impl WorkgroupMatmulTile {
    /// The tile for a product of tensors of halves with one result like them, on a target that has matrices of a workgroup.
    pub fn new(kernel: &Product<'_>, target: &Target, tuning: &Tuning) -> Option<Self> {
        let (n, k) = (kernel.n.as_const()?, kernel.k.dense()?.as_const()?);
        let is_plain = kernel.batch.is_empty() && kernel.stats.is_empty() && kernel.m.dense().is_some();
        if target.workgroup_matrices == 0 || !is_plain || !kernel.takes_halves() || kernel.sums_halves() {
            return None;
        }
        let left = operand(kernel, kernel.a, (kernel.row(), kernel.depth)).filter(|left| !left.transposed)?;
        let right = operand(kernel, kernel.b, (kernel.depth, kernel.column()))?;
        let result = result(kernel)?;
        let is_long = k >= LONG && k.is_multiple_of(64) && target.workgroup_matrices >= 256;
        let rows = tuning.rows.unwrap_or(128);
        let columns = tuning.columns.unwrap_or(if is_long && n.is_multiple_of(256) { 256 } else { 128 });
        let depth = tuning.depth.unwrap_or(if is_long && columns >= 256 { 64 } else { 32 });
        let threads = tuning.threads.unwrap_or(if rows * columns > 128 * 128 { 256 } else { 128 });
        let fits = n >= 64 && k >= 64 && threads <= target.workgroup_matrices && [64, 128, 256].contains(&rows);
        let fits = fits && [64, 128, 256].contains(&columns);
        let given = given(kernel)?;
        let tile = Self { tile: [rows, columns, depth], threads, size: target.matrix, left, right, result, given };
        fits.then_some(tile)
    }

    /// True if each of its tensors is one binding.
    pub fn is_bound_whole(&self, module: &Module) -> bool {
        let slots = self.operands().map(|operand| Slot::Operand(operand.position));
        slots.chain([Slot::Output(self.result.position)]).all(|slot| module.windows_of(slot) == 1)
    }

    /// All that is loaded as parts of tensors.
    fn operands(&self) -> impl Iterator<Item = Halves> + '_ {
        [self.left, self.right].into_iter().chain(self.given.iter().map(|(_, given)| *given))
    }

    /// Rows and columns of a workgroup.
    pub fn extents(&self) -> (u32, u32) {
        (self.tile[0], self.tile[1])
    }
}

/// The tensor that a factor is, element by element.
fn operand(kernel: &Product<'_>, factor: ExprId, (first, second): (u8, u8)) -> Option<Halves> {
    let body = &kernel.nest.body;
    let Expr::Load { operand: position, index } = body.dag.expr(factor) else { return None };
    let &[outer, inner] = index.as_slice() else { return None };
    let is = |id: ExprId, axis: u8| *body.dag.expr(id) == Expr::Coord(axis);
    let transposed = match (is(outer, first) && is(inner, second), is(outer, second) && is(inner, first)) {
        (true, _) => false,
        (_, true) => true,
        _ => return None,
    };
    let operand = body.operands.get(usize::from(*position))?;
    let is_device = operand.space == MemorySpace::Device && operand.dtype == DType::F16;
    let pitch = aligned_pitch(&operand.shape).filter(|_| is_device)?;
    Some(Halves { position: *position, pitch, transposed })
}

/// Tensors of halves that the result reads where it is itself.
fn given(kernel: &Product<'_>) -> Option<Vec<(ExprId, Halves)>> {
    let [Output { value, .. }] = kernel.nest.outputs.as_slice() else { return None };
    let loads = kernel.nest.body.dag.reachable(&[*value]).into_iter();
    let here = |id| operand(kernel, id, (kernel.row(), kernel.column())).filter(|found| !found.transposed);
    Some(loads.filter_map(|id| Some((id, here(id)?))).collect())
}

/// The tensor that the results are, if there is one.
fn result(kernel: &Product<'_>) -> Option<Halves> {
    let [Output { target: position, dtype: DType::F16, shape, index, columns: None, .. }] =
        kernel.nest.outputs.as_slice()
    else {
        return None;
    };
    let dag = &kernel.nest.body.dag;
    let axes = [kernel.row(), kernel.column()];
    let is_whole = index.len() == 2 && index.iter().zip(axes).all(|(id, axis)| *dag.expr(*id) == Expr::Coord(axis));
    let pitch = aligned_pitch(shape).filter(|_| is_whole)?;
    Some(Halves { position: *position, pitch, transposed: false })
}

/// The pitch of a matrix of halves.
fn aligned_pitch(shape: &[Dim]) -> Option<usize> {
    let [_, width] = shape else { return None };
    let pitch = DType::F16.format().pitch(width.as_const()?)?;
    pitch.is_multiple_of(ALIGNED).then_some(pitch)
}

/// Emits a product of matrices of a workgroup.
pub(super) fn emit(
    kernel: &Product<'_>,
    tile: &WorkgroupMatmulTile,
    mut module: Module,
) -> Result<ParsedKernel, EmitError> {
    tile.operands().for_each(|operand| module.note_tensor(operand.position));
    let [Output { value, .. }] = kernel.nest.outputs.as_slice() else {
        return Err(EmitError::Form { reason: "a product of a workgroup has one result".to_owned() });
    };
    module.note_tensor_result(tile.result.position, DType::F16);
    module.note_halves();
    let coords = result_coords(kernel);
    let mut code = Code::point(&coords, &[(kernel.sum(), Emitted::Uniform("sum".to_owned()))]);
    for (number, (load, _)) in tile.given.iter().enumerate() {
        code.learn(*load, Emitted::Uniform(format!("given{number}")));
    }
    let value = code.eval_one(&mut module, *value)?.first();
    code.line(&format!("return {value};"));
    let more: String = (0..tile.given.len()).map(|number| format!(", given{number}: f32")).collect();
    let hooks = function("finish", &coords, &format!(", sum: f32{more}"), "f32", &code.take());
    let (body, grid, tile_lists) = place(kernel, tile.extents(), &mut module)?;
    let tensor = |of: Halves| {
        Variable::from_pairs([
            ("operand", Variable::from(of.position)),
            ("output", of.position.into()),
            ("pitch", of.pitch.into()),
            ("transposed", of.transposed.into()),
        ])
    };
    let [tile_m, tile_n, tile_k] = tile.tile;
    let n = module.dim(kernel.n);
    let k = kernel.k.dense().and_then(Dim::as_const).unwrap_or(0);
    let variables = vec![
        ("size", tile.size.into()),
        ("tile_m", tile_m.into()),
        ("tile_n", tile_n.into()),
        ("tile_k", tile_k.into()),
        ("n", n.into()),
        ("k", k.into()),
        ("left", tensor(tile.left)),
        ("right", tensor(tile.right)),
        ("result", tensor(tile.result)),
        ("given", tile.given.iter().map(|(_, given)| tensor(*given)).collect::<Vec<_>>().into()),
    ];
    let extension = Some(Extension::Workgroup { tile: tile.tile });
    let main = Main { threads: tile.threads, hooks, body, variables, extension };
    TEMPLATE.render(module, main, grid, tile_lists)
}
