//! Attention: two products with weights between them.

use super::error::Refusal;
use super::inline::Inliner;
use super::kernel::{host_operand, matrix, operands, outputs, result, ty, unbounded};
use crate::plan::{Attention, Kernel, RowRange};
use rewire_graph::op::{Reduce, ReduceOp, ScoreSoftmax, Scores};
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId, UnaryOp};
use rewire_graph::{Dim, Graph, NodeId, Scalar, Type, Value};
use std::collections::HashMap;

/// A weighted sum with the scores of its pairs.
pub(super) fn jagged_attention(body: &Graph, node: NodeId) -> Result<Kernel, Refusal> {
    let mut at = Inliner::new(body);
    let [weights, v, rows, keys] = operands(body, node)?;
    let scores = body
        .ids()
        .find(|&id| body.node(id).is_some_and(|node| node.op.downcast_ref::<Scores>().is_some()))
        .ok_or("weights are not made of scores")?;
    let [q, k, score_rows, score_keys] = operands(body, scores)?;
    if (score_rows, score_keys) != (rows, keys) {
        return Err("scores and their sum differ in offsets".into());
    }
    let (q_ty, v_ty) = (ty(body, q)?, ty(body, v)?);
    let constant =
        |ty: &Type, axis: usize| ty.extent(axis).ok_or_else(|| format!("axis {axis} of {ty} is no constant"));
    let (heads, qk_width, v_width) = (constant(&q_ty, 1)?, constant(&q_ty, 2)?, constant(&v_ty, 2)?);
    let (sample, row, other) = (unbounded(&mut at, 0), unbounded(&mut at, 2), unbounded(&mut at, 3));
    let [qk_column, v_column] = [qk_width, v_width].map(|width| at.body.dag.coord(3, Some(width)));
    let head = at.body.dag.coord(1, Some(heads));
    let (query, key) = (at.jagged_row(rows, sample, row)?, at.jagged_row(keys, sample, row)?);
    let q = at.element(q, &[query, head, qk_column])?;
    let k = at.element(k, &[key, head, qk_column])?;
    let v = at.element(v, &[key, head, v_column])?;
    let dot = at.body.dag.value(0, Scalar::F32);
    let pair = vec![sample, head, row, other];
    at.anchor(result(scores), pair.clone(), dot);
    let softmax = body.node(weights.node).is_some_and(|node| node.op.downcast_ref::<ScoreSoftmax>().is_some());
    let (mask, score) = match softmax {
        true => {
            let [scores, keep, ..] = operands::<4>(body, weights.node)?;
            let (keep, score) = (at.element(keep, &pair)?, at.element(scores, &pair)?);
            (Some(keep).filter(|&keep| *at.body.dag.expr(keep) != Expr::Bool(true)), score)
        }
        false => {
            let weight = at.element(weights, &pair)?;
            masked(&at, weight)
        }
    };
    let point = vec![query, head, v_column];
    at.anchor(result(node), point.clone(), dot);
    let outputs = outputs(&mut at, &HashMap::from([(result(node), point)]))?;
    let samples = ty(body, weights)?.shape.first().cloned().unwrap_or_default();
    let (rows, keys) = (host_operand(&at, rows)?, host_operand(&at, keys)?);
    Ok(Kernel::Attention(Attention {
        body: at.body,
        samples,
        heads,
        qk_width,
        v_width,
        rows: RowRange::Ragged { offsets: rows },
        keys: RowRange::Ragged { offsets: keys },
        q,
        k,
        v,
        score,
        mask,
        softmax,
        outputs,
    }))
}

/// Splits `mask ? score : 0`.
fn masked(at: &Inliner, weight: ExprId) -> (Option<ExprId>, ExprId) {
    let dag = &at.body.dag;
    match *dag.expr(weight) {
        Expr::Select(mask, score, zero) if *dag.expr(zero) == Expr::Float(0) => (Some(mask), score),
        _ => (None, weight),
    }
}

/// Two dense products with the softmax of rows between them.
///
/// What the rows are computed from may reach the second product in any layout: the first product and the two
/// reductions are taken at the coordinates at which the second product reads them.
pub(super) fn dense_attention(
    body: &Graph,
    scores: NodeId,
    sum: NodeId,
    reductions: &[NodeId],
) -> Result<Kernel, Refusal> {
    let mut at = Inliner::new(body);
    let [weights, v] = operands(body, sum)?;
    let (shape, v_shape) = (ty(body, result(sum))?.shape, ty(body, v)?.shape);
    let [batch @ .., rows, width] = shape.as_slice() else { return Err("a product has less than two axes".into()) };
    let keys = v_shape.get(v_shape.len().saturating_sub(2)).ok_or("a product has less than two axes")?;
    let [q, k] = operands(body, scores)?;
    let (q_shape, k_shape) = (ty(body, q)?.shape, ty(body, k)?.shape);
    let (v_width, qk_width) = (constant(width)?, constant(q_shape.last().unwrap_or(width))?);
    if v_width > WIDEST {
        return Err(format!("its values are wider than {WIDEST}").into());
    }
    let entries = Entries::new(&mut at, batch, [rows, width])?;
    let row = entries.row;
    let [key, key_row] = [3, 2].map(|axis| at.body.dag.coord(axis, keys.as_const()));
    let [qk_column, v_column] = [qk_width, v_width].map(|width| at.body.dag.coord(3, Some(width)));

    let weights_shape = ty(body, weights)?.shape;
    let point = matrix(&entries.coords, &weights_shape, [row, key]);
    let (score, entry) = softmax_score(&mut at, scores, reductions, (weights, &point), (row, key, keys))?;
    at.release(reductions);
    at.release(&[scores]);
    let q = at.element(q, &matrix(&entry, &q_shape, [row, qk_column]))?;
    let k = at.element(k, &matrix(&entry, &k_shape, [qk_column, key_row]))?;
    let v = at.element(v, &matrix(&entries.coords, &v_shape, [key_row, v_column]))?;
    let total = at.body.dag.value(0, Scalar::F32);
    let point: Vec<ExprId> = entries.coords.iter().copied().chain([row, v_column]).collect();
    at.anchor(result(sum), point.clone(), total);
    let outputs = outputs(&mut at, &HashMap::from([(result(sum), point)]))?;
    Ok(Kernel::Attention(Attention {
        body: at.body,
        samples: entries.samples,
        heads: entries.heads,
        qk_width,
        v_width,
        rows: RowRange::Dense(rows.clone()),
        keys: RowRange::Dense(keys.clone()),
        q,
        k,
        v,
        score,
        mask: None,
        softmax: true,
        outputs,
    }))
}

/// Columns of values that a kernel keeps in registers at most.
const WIDEST: usize = 256;

fn constant(dim: &Dim) -> Result<usize, Refusal> {
    dim.as_const().ok_or_else(|| format!("the width {dim} is no constant").into())
}

/// The leading axes of a product as samples and heads.
struct Entries {
    samples: Dim,
    heads: usize,
    /// One a leading axis.
    coords: Vec<ExprId>,
    row: ExprId,
}

impl Entries {
    /// The last leading axis is the heads if it is a constant; the others are the samples.
    fn new(at: &mut Inliner, batch: &[Dim], [rows, width]: [&Dim; 2]) -> Result<Self, Refusal> {
        let heads = batch.last().and_then(Dim::as_const);
        let outer = &batch[..batch.len() - usize::from(heads.is_some())];
        let samples = outer.iter().try_fold(Dim::from(1), |product, dim| product.product(dim));
        let samples = samples.ok_or("the number of samples is no product of sizes")?;
        let points = [&samples, &heads.unwrap_or(1).into(), rows, width].map(Dim::clone);
        let [mut rest, head, row, _] = at.coords(&points)[..] else {
            return Err("a loop has no coordinates".into());
        };
        let mut coords = vec![];
        for dim in outer.iter().skip(1).rev() {
            let extent = at.size(dim);
            coords.push(at.body.dag.binary(BinaryOp::Mod, rest, extent));
            rest = at.body.dag.binary(BinaryOp::Div, rest, extent);
        }
        coords.extend(outer.first().map(|_| rest));
        coords.reverse();
        coords.extend(heads.map(|_| head));
        Ok(Self { samples, heads: heads.unwrap_or(1), coords, row })
    }
}

/// The score under the softmax that `weights` at `point` are, and the batch entry of the first product.
fn softmax_score(
    at: &mut Inliner,
    scores: NodeId,
    reductions: &[NodeId],
    (weights, point): (Value, &[ExprId]),
    (row, key, keys): (ExprId, ExprId, &Dim),
) -> Result<(ExprId, Vec<ExprId>), Refusal> {
    let other = || Refusal::from("what lies between two products is not the softmax of rows");
    let &[largest, total] = reductions else { return Err(other()) };
    let supplied = [scores, largest, total];
    for (position, id) in supplied.into_iter().enumerate() {
        let value = at.body.dag.value(position as u8, Scalar::F32);
        at.supply(result(id), value);
    }
    let [_, max, sum] = [0, 1, 2].map(|position| at.body.dag.value(position, Scalar::F32));
    let weight = at.element(weights, point)?;
    let dag = &at.body.dag;
    let &Expr::Binary(BinaryOp::Div, exp, divisor) = dag.expr(weight) else { return Err(other()) };
    let &Expr::Unary(UnaryOp::Exp, shifted) = dag.expr(exp) else { return Err(other()) };
    let &Expr::Binary(BinaryOp::Sub, score, shift) = dag.expr(shifted) else { return Err(other()) };
    if (divisor, shift) != (sum, max) || dag.values(score) != 1 {
        return Err(other());
    }
    for (id, op, expected) in [(largest, ReduceOp::Max, score), (total, ReduceOp::Sum, exp)] {
        if reduced(at, id, op, key, keys)? != expected {
            return Err(other());
        }
    }
    let product = at.supplied_at(result(scores)).ok_or_else(other)?;
    let entry = product[..product.len() - 2].to_vec();
    let pair: Vec<ExprId> = entry.iter().copied().chain([row, key]).collect();
    let per_entry = entry.iter().all(|&coord| at.body.dag.coords(coord) & !0b11 == 0);
    if at.canonical(result(scores), &pair) != product || !per_entry {
        return Err("the scores of a softmax are not read row by row".into());
    }
    Ok((score, entry))
}

/// What a reduction combines, at the place where it was read and the given key.
fn reduced(at: &mut Inliner, id: NodeId, op: ReduceOp, key: ExprId, keys: &Dim) -> Result<ExprId, Refusal> {
    let graph = at.graph;
    let [x] = operands(graph, id)?;
    let reduce = graph.node(id).and_then(|node| node.op.downcast_ref::<Reduce>()).ok_or("no reduction")?;
    let mut point = at.supplied_at(result(id)).ok_or("a reduction is not read")?;
    if reduce.op != op || ty(graph, x)?.shape.get(reduce.axis) != Some(keys) {
        return Err("a reduction is not over the keys".into());
    }
    point[reduce.axis] = key;
    at.element(x, &point)
}
