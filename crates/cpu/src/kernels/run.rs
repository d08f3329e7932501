//! Indices that address neighbouring elements at neighbouring points.

use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{DType, Dim, Scalar};
use rewire_graph_rewrite::plan::{Body, Operand};
use std::collections::HashMap;

/// Indices that move by one element a point: the last ones, as one index of the elements they span.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    /// Number of indices before it, which do not move.
    pub outer: usize,
    /// The position at point 0: a sum of multiples.
    pub terms: Vec<(ExprId, i32)>,
}

/// True if one of these expressions depends on coordinate `axis`.
pub(super) fn moves(dag: &Dag, index: &[ExprId], axis: u8) -> bool {
    index.iter().any(|&id| dag.coords(id).checked_shr(axis.into()).unwrap_or(0) & 1 == 1)
}

/// The rest of an integer expression that moves by one when coordinate `axis` does.
pub(super) fn run_along(dag: &Dag, id: ExprId, axis: u8) -> Option<Vec<(ExprId, i32)>> {
    let moves = |id: ExprId| moves(dag, &[id], axis);
    match *dag.expr(id) {
        Expr::Coord(coord) if coord == axis => Some(vec![]),
        Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) if dag.scalar(id) == Scalar::I32 => {
            let (run, rest, sign) = match (moves(a), moves(b), op) {
                (true, false, BinaryOp::Add) => (a, b, 1),
                (true, false, _) => (a, b, -1),
                (false, true, BinaryOp::Add) => (b, a, 1),
                _ => return None,
            };
            let mut terms = run_along(dag, run, axis)?;
            if dag.values(rest) != 0 {
                return None;
            }
            terms.push((rest, sign));
            Some(terms)
        }
        _ => None,
    }
}

/// The sum of these multiples, if all are constants.
pub(super) fn constant(dag: &Dag, terms: &[(ExprId, i32)]) -> Option<i64> {
    terms.iter().try_fold(0, |sum, &(id, sign)| match *dag.expr(id) {
        Expr::Int(_, value) => Some(sum + value * i64::from(sign)),
        _ => None,
    })
}

/// The run of the indices of a tensor. Dimensions without padding between their rows may be spanned together.
pub(super) fn run(dag: &mut Dag, index: &[ExprId], (dtype, shape): (DType, &[Dim]), axis: u8) -> Option<Run> {
    if index.len() != shape.len() || !moves(dag, index, axis) {
        return None;
    }
    let mut outer = index.len() - 1;
    while moves(dag, &index[..outer], axis) {
        outer -= 1;
    }
    let width = shape.last().and_then(Dim::as_const);
    let unpadded = width.is_some() && width.and_then(|width| dtype.format().pitch(width)) == width;
    if outer + 1 < index.len() && !unpadded {
        return None;
    }
    let mut flat = index[outer];
    for (&index, extent) in index.iter().zip(shape).skip(outer + 1) {
        let extent = i64::try_from(extent.as_const()?).ok()?;
        let extent = dag.int(extent);
        let scaled = dag.binary(BinaryOp::Mul, flat, extent);
        flat = dag.binary(BinaryOp::Add, scaled, index);
    }
    run_along(dag, flat, axis).map(|terms| Run { outer, terms })
}

/// The runs of all loads.
pub(super) fn runs(dag: &mut Dag, operands: &[Operand], axis: u8) -> HashMap<ExprId, Run> {
    let mut runs = HashMap::new();
    for id in dag.ids() {
        let Expr::Load { operand, index } = dag.expr(id).clone() else { continue };
        let Some(operand) = operands.get(usize::from(operand)) else { continue };
        if let Some(run) = run(dag, &index, (operand.dtype, &operand.shape), axis) {
            runs.insert(id, run);
        }
    }
    runs
}

/// Expressions of one coordinate in place of two neighbouring ones: `inner`, then `width` wide, and `outer` before it. The new
/// one is `to`, of `extent` points if that is a constant.
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

/// Number of loads that do not take neighbouring elements at neighbouring points of `axis`.
pub(super) fn scattered(body: &Body, roots: &[ExprId], axis: u8) -> usize {
    let runs = runs(&mut body.dag.clone(), &body.operands, axis);
    let loads = body.dag.reachable(roots).into_iter().filter(|id| match body.dag.expr(*id) {
        Expr::Load { index, .. } => moves(&body.dag, index, axis) && !runs.contains_key(id),
        _ => false,
    });
    loads.count()
}
