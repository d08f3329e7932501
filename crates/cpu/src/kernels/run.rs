//! Runs: loads and stores of contiguous elements along an axis.

use rewire_graph::pointwise::{Affine, BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::plan::{Body, Operand};
use std::collections::HashMap;
use std::ops::Range;

/// Indices that increase by one element per point. The last indices are merged to one over the elements that they span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    /// Number of leading indices, which are constant along the axis.
    pub outer: usize,
    /// The merged index at point 0.
    pub start: Affine<ExprId>,
}

/// The value at point 0 of an integer expression that increases by one with coordinate `axis`.
pub(super) fn run_along(dag: &Dag, id: ExprId, axis: u8) -> Option<Affine<ExprId>> {
    start_along(dag, &dag.affine(id), axis)
}

fn start_along(dag: &Dag, sum: &Affine<ExprId>, axis: u8) -> Option<Affine<ExprId>> {
    let (stride, start) = dag.along(sum, axis)?;
    (stride == 1 && start.terms().all(|(id, _)| dag.values(id) == 0)).then_some(start)
}

/// The run of a tensor's indices. Dimensions can be merged only if rows have no padding.
pub(super) fn run(dag: &Dag, index: &[ExprId], (dtype, shape): (DType, &[Dim]), axis: u8) -> Option<Run> {
    let outer = index.iter().position(|id| dag.access(std::slice::from_ref(id)).moves(axis))?;
    if index.len() != shape.len() || outer + 1 < index.len() && !is_unpadded(dtype, shape) {
        return None;
    }
    let place = dag.access(&index[outer..]).place(&shape[outer..])?;
    Some(Run { outer, start: start_along(dag, &place, axis)? })
}

/// True if rows of a tensor have no padding.
fn is_unpadded(dtype: DType, shape: &[Dim]) -> bool {
    let width = shape.last().and_then(Dim::as_const);
    width.is_some() && width.and_then(|width| dtype.format().pitch(width)) == width
}

/// The dimensions indexed by a coordinate: one, or several that it traverses as one.
pub(super) fn axes_along(
    dag: &Dag,
    index: &[ExprId],
    (dtype, shape): (DType, &[Dim]),
    axis: u8,
) -> Option<Range<usize>> {
    let moves = |id: &ExprId| dag.access(std::slice::from_ref(id)).moves(axis);
    let axes = index.iter().position(moves)?..index.iter().rposition(moves)? + 1;
    if axes.len() > 1 && axes.end == shape.len() && !is_unpadded(dtype, shape) {
        return None;
    }
    let place = dag.access(index.get(axes.clone())?).place(shape.get(axes.clone())?)?;
    start_along(dag, &place, axis).map(|_| axes)
}

/// True if indices traverse the elements of a shape in order along a coordinate.
pub(super) fn counts_along(dag: &Dag, index: &[ExprId], shape: &[Dim], axis: u8) -> bool {
    let start = dag.access(index).place(shape).and_then(|place| start_along(dag, &place, axis));
    start.is_some_and(|start| start.as_constant() == Some(0))
}

/// The runs of all loads.
pub(super) fn runs(dag: &Dag, operands: &[Operand], axis: u8) -> HashMap<ExprId, Run> {
    let of = |id: ExprId| {
        let Expr::Load { operand, index } = dag.expr(id) else { return None };
        let operand = operands.get(usize::from(*operand))?;
        Some((id, run(dag, index, (operand.dtype, &operand.shape), axis)?))
    };
    dag.ids().filter_map(of).collect()
}

/// Merges the coordinate `outer` and the next one, `inner` with extent `width`, to the coordinate `to`. `extent` is its
/// extent, if constant.
pub(super) fn as_one(
    dag: &Dag,
    roots: &[ExprId],
    (outer, inner, to): (u8, u8, u8),
    (width, extent): (usize, Option<usize>),
) -> (Dag, Vec<ExprId>) {
    let mut one = Dag::new();
    let (point, width) = (one.coord(to, extent), one.int(width as i64));
    let (row, column) = (one.binary(BinaryOp::Div, point, width), one.binary(BinaryOp::Mod, point, width));
    let copies = one.graft(dag, roots, |_, expr, _| match *expr {
        Expr::Coord(coord) if coord == outer => Some(row),
        Expr::Coord(coord) if coord == inner => Some(column),
        _ => None,
    });
    (one, copies)
}

/// Number of loads that are not contiguous along `axis`.
pub(super) fn scattered(body: &Body, roots: &[ExprId], axis: u8) -> usize {
    let runs = runs(&body.dag, &body.operands, axis);
    let loads = body.dag.reachable(roots).into_iter().filter(|id| match body.dag.expr(*id) {
        Expr::Load { index, .. } => body.dag.access(index).moves(axis) && !runs.contains_key(id),
        _ => false,
    });
    loads.count()
}
