//! Operands and results of matmuls that are stored matrices of f16 or of bytes: tensors with two dimensions, or with the inner
//! dimensions merged.

use rewire_graph::pointwise::{Affine, Expr, ExprId};
use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::plan::{MemorySpace, Output};
use rewire_graph_rewrite::schedule::{Bound, Product};

/// Alignment of rows in bits: the hardware loads 16 bytes at once.
const ALIGNED: usize = 128;

/// A tensor of f16 or of bytes.
#[derive(Clone, Copy)]
pub(super) struct StoredMatrix {
    /// Position of the operand or output.
    pub position: u16,
    /// Distance between rows, in elements.
    pub pitch: usize,
    /// True if its rows are columns of the matmul.
    pub transposed: bool,
}

/// A range of result columns that is stored to one tensor.
pub(super) struct Results {
    pub tensor: StoredMatrix,
    /// The first column.
    pub start: usize,
    pub end: usize,
    pub value: ExprId,
    /// Tensors that the epilogue reads at the index of the result, such as residuals, with their loads.
    pub given: Vec<(ExprId, StoredMatrix)>,
}

/// The tensor of a type that an operand loads without changes.
pub(super) fn operand(
    kernel: &Bound<'_, Product>,
    dtype: DType,
    factor: ExprId,
    (first, second): (u8, u8),
) -> Option<StoredMatrix> {
    let body = &kernel.nest.body;
    let Expr::Load { operand: position, index } = body.dag.expr(factor) else { return None };
    let access = body.dag.access(index);
    let transposed = access.ends_with(&[second, first]);
    if index.len() != 2 || !transposed && !access.ends_with(&[first, second]) {
        return None;
    }
    let operand = body.operands.get(usize::from(*position))?;
    let is_device = operand.space == MemorySpace::Device && operand.dtype == dtype;
    let pitch = pitch(dtype, &operand.shape).filter(|_| is_device)?;
    Some(StoredMatrix { position: *position, pitch, transposed })
}

/// The column ranges of all results; `None` unless all are stored as f16 matrices.
pub(super) fn results(kernel: &Bound<'_, Product>, columns: usize) -> Option<Vec<Results>> {
    kernel.nest.outputs.iter().map(|output| result(kernel, columns, output)).collect()
}

fn result(kernel: &Bound<'_, Product>, columns: usize, output: &Output) -> Option<Results> {
    let dag = &kernel.nest.body.dag;
    let (start, end) = output.columns.unwrap_or((0, columns));
    let width = end.checked_sub(start).filter(|width| *width > 0)?;
    let pitch = pitch(DType::F16, &output.shape).filter(|pitch| *pitch == width && output.dtype == DType::F16)?;
    let loads = dag.reachable(&[output.value]).into_iter();
    let here = |id| operand(kernel, DType::F16, id, (kernel.row(), kernel.column())).filter(|found| !found.transposed);
    let given = loads.filter_map(|id| Some((id, here(id)?))).collect();
    let tensor = StoredMatrix { position: output.target, pitch, transposed: false };
    follow(kernel, output, start).then_some(Results { tensor, start, end, value: output.value, given })
}

/// True if the columns of a result are consecutive in its tensor, from the first one on.
fn follow(kernel: &Bound<'_, Product>, output: &Output, start: usize) -> bool {
    let dag = &kernel.nest.body.dag;
    let (Some((row, inner)), Some(widths)) = (output.index.split_first(), output.shape.get(1..)) else { return false };
    let place = dag.access(inner).place(widths);
    let along = place.and_then(|place| dag.along(&place, kernel.column()));
    *dag.expr(*row) == Expr::Coord(kernel.row()) && along == Some((1, Affine::constant(-(start as i128))))
}

/// The pitch of a tensor as a matrix: a row consists of all dimensions after the first.
fn pitch(dtype: DType, shape: &[Dim]) -> Option<usize> {
    let (_, inner) = shape.split_first()?;
    let widths = inner.iter().map(Dim::as_const).collect::<Option<Vec<usize>>>()?;
    let (last, outer) = widths.split_last()?;
    let pitch = dtype.format().pitch(*last).filter(|pitch| outer.is_empty() || pitch == last)?;
    let pitch = outer.iter().try_fold(pitch, |pitch, width| pitch.checked_mul(*width))?;
    (pitch * dtype.format().bits).is_multiple_of(ALIGNED).then_some(pitch)
}
