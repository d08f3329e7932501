//! Matmuls that do not fill tiles.

use crate::schedule::{Map, Product, Reduction};
use rewire_graph::limits::MAX_POINTS;
use rewire_graph::nest::{Axis, Extent, Nest};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{DType, Dim};

/// Number of rows from which one batch entry fills a tile.
const TILE: usize = 64;

/// A matmul in its fastest form: with a depth of one as a pointwise loop, with one column as a row reduction, and with
/// a right operand that all batch entries share as one larger matmul.
pub(super) fn widened(nest: Nest) -> Nest {
    if let Some(simpler) = of_one_term(&nest).or_else(|| of_one_column(&nest)) {
        return simpler;
    }
    let mut nest = nest;
    while let Some(merged) = of_entries(&nest) {
        nest = merged;
    }
    nest
}

/// The matmul of a nest without row statistics, and the product of its factors, if it accumulates in f32.
fn multiplied(nest: &Nest) -> Option<(Product, Nest, ExprId)> {
    let product = Product::of(nest).ok().filter(|product| product.stats.is_empty())?;
    nest.accumulations.first().filter(|sum| sum.dtype == DType::F32)?;
    let mut nest = nest.clone();
    let term = nest.body.dag.binary(BinaryOp::Mul, product.a, product.b);
    Some((product, nest, term))
}

fn is_one(dim: Option<&Dim>) -> bool {
    dim.and_then(Dim::as_const) == Some(1)
}

/// A matmul with a depth of one as a map: the product of two elements.
fn of_one_term(nest: &Nest) -> Option<Nest> {
    let (product, mut nest, term) = multiplied(nest).filter(|(product, ..)| is_one(product.k.dense()))?;
    nest.axes.remove(product.depth.into());
    nest.accumulations.clear();
    let mut dag = Dag::new();
    let at_first = |dag: &mut Dag, expr: &Expr| (*expr == Expr::Coord(product.depth)).then(|| dag.int(0));
    let term = *dag.graft(&nest.body.dag, &[term], |dag, expr, _| at_first(dag, expr)).first()?;
    let roots = nest.roots();
    let copies = dag.graft(&nest.body.dag, &roots, |dag, expr, _| match *expr {
        Expr::Value(position) if position == product.sum() => Some(term),
        _ => at_first(dag, expr),
    });
    nest.roots_mut().into_iter().zip(copies).for_each(|(root, copy)| *root = copy);
    nest.body.dag = dag;
    Map::of(&nest).is_ok().then_some(nest)
}

/// A matmul with one column as a reduction: one sum per row.
fn of_one_column(nest: &Nest) -> Option<Nest> {
    let (product, mut nest, term) = multiplied(nest).filter(|(product, ..)| is_one(Some(&product.n)))?;
    let column = product.column();
    if product.depth != column + 1 {
        return None;
    }
    let extent = product.k.dense()?.as_const();
    nest.axes.remove(column.into());
    nest.axes.last_mut()?.summed = false;
    let sum = nest.accumulations.first_mut()?;
    (sum.axis, sum.factors) = (column, vec![term]);
    nest.rebuild(|dag, expr, _| match *expr {
        Expr::Coord(axis) if axis == column => Some(dag.int(0)),
        Expr::Coord(axis) if axis == product.depth => Some(dag.coord(column, extent)),
        _ => None,
    });
    Reduction::of(&nest).is_ok().then_some(nest)
}

/// Merges the last batch axis of a matmul with its rows if its right operand is the same for all batch entries, so that
/// a tile has rows of several entries. Entries that fill tiles are merged only if no index then contains a division.
fn of_entries(nest: &Nest) -> Option<Nest> {
    let product = Product::of(nest).ok()?;
    let (entry, row) = (product.batch.len().checked_sub(1)?, product.row());
    let width = product.m.dense()?.as_const().filter(|&width| width > 0)?;
    if nest.body.dag.coords(product.b) & (1 << entry | 1 << row) != 0 {
        return None;
    }
    let mut merged = nest.clone();
    merged.axes.remove(row.into());
    merged.axes[entry].extent = Extent::Dense(product.batch[entry].product(product.m.dense()?)?);
    merged.accumulations.iter_mut().filter(|sum| sum.axis > row).for_each(|sum| sum.axis -= 1);
    let bounds = bounds(&merged.axes);
    merged.rebuild(|dag, expr, _| {
        let Expr::Coord(axis) = *expr else { return None };
        let mut coord = |axis: u8| dag.coord(axis, bounds[usize::from(axis)]);
        if axis > row {
            return Some(coord(axis - 1));
        }
        if usize::from(axis) < entry {
            return Some(coord(axis));
        }
        let (point, width) = (coord(entry as u8), dag.int(width as i64));
        Some(dag.binary(if axis == row { BinaryOp::Mod } else { BinaryOp::Div }, point, width))
    });
    let is_divided = |dag: &Dag, id: ExprId| match *dag.expr(id) {
        Expr::Binary(BinaryOp::Div | BinaryOp::Mod, a, _) => *dag.expr(a) == Expr::Coord(entry as u8),
        _ => false,
    };
    let dag = &merged.body.dag;
    (width < TILE || !dag.reachable(&merged.roots()).into_iter().any(|id| is_divided(dag, id))).then_some(merged)
}

/// The bounds of the coordinates of axes.
fn bounds(axes: &[Axis]) -> Vec<Option<usize>> {
    let constant = |axis: &Axis| axis.extent.dense().and_then(Dim::as_const);
    let results = axes.iter().filter(|axis| !axis.summed);
    let constants = results.filter_map(constant).fold(1usize, |all, n| all.saturating_mul(n.max(1)));
    let bound = |axis: &Axis| constant(axis).or((!axis.summed).then_some(MAX_POINTS / constants));
    axes.iter().map(bound).collect()
}
