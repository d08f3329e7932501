//! Outputs whose columns span several dimensions.

use crate::kernels::run::run;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph_rewrite::plan::Output;

/// Number of columns from which a separate program per part pays.
const WIDE: usize = 16;
/// Maximum number of parts.
const PARTS: usize = 64;

/// Replaces each output that divides its column by a constant, such as the columns of several heads, by one output per
/// quotient, if that makes stores contiguous.
pub(super) fn divide(dag: &Dag, outputs: &[Output], axis: u8) -> (Dag, Vec<Output>) {
    let mut all = dag.clone();
    let part = |output: &Output| parts(dag, &mut all, output, axis).unwrap_or_else(|| vec![output.clone()]);
    let divided = outputs.iter().flat_map(part).collect();
    (all, divided)
}

fn parts(dag: &Dag, all: &mut Dag, output: &Output, axis: u8) -> Option<Vec<Output>> {
    let is_run = |dag: &Dag, output: &Output| run(dag, &output.index, (output.dtype, &output.shape), axis).is_some();
    let is_column = |id: ExprId| *dag.expr(id) == Expr::Coord(axis);
    let last = dag.ids().find(|id| is_column(*id)).and_then(|id| dag.range(id))?.1;
    let (low, high) = output.columns.unwrap_or((0, usize::try_from(last).ok()?.checked_add(1)?));
    let divisor = |id: ExprId| match *dag.expr(id) {
        Expr::Binary(BinaryOp::Div | BinaryOp::Mod, a, b) if is_column(a) => match *dag.expr(b) {
            Expr::Int(_, divisor) => usize::try_from(divisor).ok(),
            _ => None,
        },
        _ => None,
    };
    let width = dag.reachable(&output.index).into_iter().filter_map(divisor).min().filter(|&width| width >= WIDE)?;
    if (high - low).div_ceil(width) > PARTS || is_run(dag, output) {
        return None;
    }
    let roots: Vec<ExprId> = output.roots().collect();
    let part = |start: usize| {
        let mut copies = all.graft(dag, &roots, |all, expr, operands| {
            let &Expr::Binary(op @ (BinaryOp::Div | BinaryOp::Mod), a, b) = expr else { return None };
            let &Expr::Int(_, divisor) = dag.expr(b) else { return None };
            if !is_column(a) || divisor % width as i64 != 0 {
                return None;
            }
            let quotient = start as i64 / divisor;
            Some(match op {
                BinaryOp::Div => all.int(quotient),
                _ => {
                    let first = all.int(quotient * divisor);
                    all.binary(BinaryOp::Sub, operands[0], first)
                }
            })
        });
        let value = copies.pop()?;
        let columns = Some((start.max(low), (start + width).min(high)));
        Some(Output { index: copies, value, columns, ..output.clone() }).filter(|part| is_run(all, part))
    };
    (low / width * width..high).step_by(width).map(part).collect()
}
