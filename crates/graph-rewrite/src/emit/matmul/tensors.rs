//! Operands and results of products that are tensors of halves as they are stored, with two dimensions or seen as such.

use crate::plan::{MemorySpace, Output};
use crate::schedule::{Bound, Product};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{DType, Dim, Scalar};

/// Elements of a row whose beginnings lie on the 16 bytes that the hardware loads at once.
const ALIGNED: usize = 8;

/// A tensor of halves.
#[derive(Clone, Copy)]
pub(super) struct Halves {
    /// The operand or the output.
    pub position: u16,
    /// Elements from a row to the next.
    pub pitch: usize,
    /// Its rows are columns of the product.
    pub transposed: bool,
}

/// A tensor of results of some columns.
pub(super) struct Results {
    pub tensor: Halves,
    /// The columns, from the first on.
    pub start: usize,
    pub end: usize,
    pub value: ExprId,
    /// Tensors that a result reads where it is itself, such as residuals.
    pub given: Vec<(ExprId, Halves)>,
}

/// The tensor that a factor is, element by element.
pub(super) fn operand(kernel: &Bound<'_, Product>, factor: ExprId, (first, second): (u8, u8)) -> Option<Halves> {
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
    let pitch = pitch(&operand.shape).filter(|_| is_device)?;
    Some(Halves { position: *position, pitch, transposed })
}

/// The tensors that the results are, if all are, as the ends of their rows tell: [`lie_whole`] looks at all columns.
pub(super) fn results(kernel: &Bound<'_, Product>, columns: usize) -> Option<Vec<Results>> {
    kernel.nest.outputs.iter().map(|output| result(kernel, columns, output)).collect()
}

fn result(kernel: &Bound<'_, Product>, columns: usize, output: &Output) -> Option<Results> {
    let dag = &kernel.nest.body.dag;
    let (start, end) = output.columns.unwrap_or((0, columns));
    let width = end.checked_sub(start).filter(|width| *width > 0)?;
    let pitch = pitch(&output.shape).filter(|pitch| *pitch == width && output.dtype == DType::F16)?;
    let loads = dag.reachable(&[output.value]).into_iter();
    let here = |id| operand(kernel, id, (kernel.row(), kernel.column())).filter(|found| !found.transposed);
    let given = loads.filter_map(|id| Some((id, here(id)?))).collect();
    let tensor = Halves { position: output.target, pitch, transposed: false };
    let fits = lies_at(kernel, output, &[start, end - 1], start)?;
    fits.then_some(Results { tensor, start, end, value: output.value, given })
}

/// True if all results lie in their tensors as columns follow one another. It takes a while for many columns.
pub(super) fn lie_whole(kernel: &Bound<'_, Product>, results: &[Results]) -> bool {
    kernel.nest.outputs.iter().zip(results).all(|(output, part)| {
        let columns: Vec<usize> = (part.start..part.end).collect();
        lies_at(kernel, output, &columns, part.start).unwrap_or(false)
    })
}

/// Whether columns lie in the row as many elements on as they follow on the first.
fn lies_at(kernel: &Bound<'_, Product>, output: &Output, columns: &[usize], start: usize) -> Option<bool> {
    let dag = &kernel.nest.body.dag;
    let (row, inner) = output.index.split_first()?;
    let is_row = *dag.expr(*row) == Expr::Coord(kernel.row());
    let widths = output.shape.get(1..)?.iter().map(|dim| i64::try_from(dim.as_const()?).ok());
    let widths = widths.collect::<Option<Vec<i64>>>().filter(|widths| widths.len() == inner.len())?;
    let place = |column: usize| {
        inner.iter().zip(&widths).try_fold(0, |place, (id, width)| {
            Some(place * width + at_column(dag, *id, kernel.column(), column as i64)?)
        })
    };
    Some(is_row && columns.iter().all(|&column| place(column) == i64::try_from(column - start).ok()))
}

/// The pitch of a tensor of halves whose rows are all that follows on the first dimension.
fn pitch(shape: &[Dim]) -> Option<usize> {
    let (_, inner) = shape.split_first()?;
    let widths = inner.iter().map(Dim::as_const).collect::<Option<Vec<usize>>>()?;
    let (last, outer) = widths.split_last()?;
    let pitch = DType::F16.format().pitch(*last).filter(|pitch| outer.is_empty() || pitch == last)?;
    let pitch = outer.iter().try_fold(pitch, |pitch, width| pitch.checked_mul(*width))?;
    pitch.is_multiple_of(ALIGNED).then_some(pitch)
}

/// The value of an index that the column alone decides.
fn at_column(dag: &Dag, id: ExprId, axis: u8, column: i64) -> Option<i64> {
    let at = |id| at_column(dag, id, axis, column);
    match *dag.expr(id) {
        Expr::Coord(coordinate) if coordinate == axis => Some(column),
        Expr::Int(_, value) => Some(value),
        Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod), a, b) => {
            Some(op.evaluate_int(Scalar::I64, at(a)?, at(b)?))
        }
        _ => None,
    }
}
