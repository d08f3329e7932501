use super::map::dense;
use super::{Analysis, Bound, depends};
use crate::count::{Count, Domain, Sizes, Tally, bits};
use crate::error::NotLowerable;
use rewire_graph::nest::{Extent, Nest, Output};
use rewire_graph::op::ReduceOp;
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId};
use rewire_graph::{Dim, Scalar};

/// A segmented reduction: a loop over points, each of which reduces rows in order. Used for sums by sample and by
/// index.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentedReduce {
    /// The loop over results; at least one dimension. Coordinate `n` is dimension `n`.
    pub extents: Vec<Dim>,
    /// The coordinate of the rows.
    pub row: u8,
    /// The number of rows: the rows of the sample at coordinate 0, or all rows.
    pub rows: Extent,
    /// The reductions; outputs read them as `Value(n)`.
    pub sums: Vec<SegmentedSum>,
    /// For sums by index: coordinate 0 of the result to which a row is added. Depends only on the row.
    pub index: Option<ExprId>,
}

/// A reduction over rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentedSum {
    /// The reduction.
    pub op: ReduceOp,
    /// The element. For a sum by index, the element of the rows added to the result.
    pub value: ExprId,
}

impl SegmentedReduce {
    /// Supports nests of dense results with reductions over one axis, which no result has, and one factor each.
    ///
    /// # Errors
    /// [`NotLowerable`] for another nest.
    pub fn of(nest: &Nest) -> Result<Self, NotLowerable> {
        let extents = dense(nest, nest.rank())?;
        let row = nest.accumulations.first().ok_or("it combines nothing")?.axis;
        let axis =
            nest.axes.get(usize::from(row)).filter(|axis| axis.summed).ok_or("it combines an axis of a result")?;
        let mut sums = vec![];
        for sum in &nest.accumulations {
            let &[value] = sum.factors.as_slice() else { return Err("it contracts within a reduction".into()) };
            if sum.axis != row || nest.body.dag.values(value) != 0 {
                return Err("it reduces a value that is reduced over another axis".into());
            }
            sums.push(SegmentedSum { op: sum.op, value });
        }
        if depends(nest, nest.outputs.iter().flat_map(Output::roots), 1 << row) {
            return Err("an output depends on a reduced row".into());
        }
        let by_index = sums.iter().map(|sum| indexed(nest, sum, row)).collect::<Option<Vec<_>>>();
        let same = by_index
            .filter(|found| axis.extent.dense().is_some() && found.windows(2).all(|pair| pair[0].0 == pair[1].0));
        let index = same.as_ref().and_then(|found| found.first()).map(|(index, _)| *index);
        if let Some(found) = same {
            sums.iter_mut().zip(found).for_each(|(sum, (_, value))| sum.value = value);
        }
        Ok(Self { extents, row, rows: axis.extent.clone(), sums, index })
    }
}

impl Bound<'_, SegmentedReduce> {
    /// True if the reduction combines rows as wide as the result: the rows of a matrix, or of consecutive matrices.
    pub fn goes_down_columns(&self) -> bool {
        let Some(column) = self.extents.len().checked_sub(1).filter(|_| self.index.is_none()) else { return false };
        let dag = &self.nest.body.dag;
        let values: Vec<ExprId> = self.sums.iter().map(|sum| sum.value).collect();
        let mut is_wide = false;
        for id in dag.reachable(&values) {
            let Expr::Load { index, .. } = dag.expr(id) else { continue };
            let (access, column) = (dag.access(index), column as u8);
            // Elements that all columns share, such as the row ids of a table lookup, are read once for all columns.
            if access.columns_move(self.row) && access.moves(column) && access.stride(column) != Some(1) {
                return false;
            }
            is_wide |= access.columns_move(column) && access.moves(self.row);
        }
        is_wide && self.sums.iter().all(|sum| dag.scalar(sum.value) == Scalar::F32)
    }
}

impl Analysis for Bound<'_, SegmentedReduce> {
    /// Every row is read once, regardless of the results to which it is added.
    fn count(&self, sizes: &Sizes) -> Count {
        let results = Domain::of(self.nest, sizes, self.nest.rank());
        let samples = results.extents.first().copied().unwrap_or(1);
        let ragged = matches!(self.rows, Extent::Ragged { .. });
        let total: u64 = sizes.rows(&self.rows, if ragged { samples } else { 1 }).iter().sum();
        let mut extents = results.extents.clone();
        extents.resize(self.nest.axes.len(), 1);
        extents[usize::from(self.row)] = total;
        let row = bits(&[self.row]);
        // The first axis of the result is indexed by rows.
        let joint = if ragged || self.index.is_some() { vec![(row | 1, total), (row, total)] } else { vec![] };
        let rows = Domain { extents, joint, times: 1 };
        let mut tally = Tally::new(self.nest, sizes);
        for sum in &self.sums {
            let read: Vec<ExprId> = self.index.into_iter().chain([sum.value]).collect();
            tally.add(&read, &rows);
            tally.operations(rows.all());
        }
        tally.write(&self.nest.outputs, &results, results.columns());
        tally.finish()
    }
}

/// The index and the element of `index == coordinate 0 ? element : 0`.
fn indexed(nest: &Nest, sum: &SegmentedSum, row: u8) -> Option<(ExprId, ExprId)> {
    let dag = &nest.body.dag;
    let &Expr::Select(hit, value, zero) = dag.expr(sum.value) else { return None };
    let &Expr::Binary(BinaryOp::Eq, a, b) = dag.expr(hit) else { return None };
    let (index, of) = if *dag.expr(a) == Expr::Coord(0) { (b, a) } else { (a, b) };
    let plain = *dag.expr(of) == Expr::Coord(0) && *dag.expr(zero) == Expr::Float(0) && sum.op == ReduceOp::Sum;
    let of_row = dag.coords(index) == 1 << row && dag.coords(value) & 1 == 0;
    (plain && of_row).then_some((index, value))
}
