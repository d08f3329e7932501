use super::map::dense;
use super::{Analysis, Bound, depends};
use crate::count::{Count, Domain, Sizes, Tally};
use crate::error::NotLowerable;
use rewire_graph::Dim;
use rewire_graph::limits::{MAX_VALUES, check_count};
use rewire_graph::nest::{Nest, Output};
use rewire_graph::op::ReduceOp;
use rewire_graph::pointwise::ExprId;

/// A reduction over an axis of a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced {
    /// The reduction.
    pub op: ReduceOp,
    /// The axis.
    pub axis: u8,
    /// Its extent.
    pub extent: Dim,
    /// The element.
    pub value: ExprId,
}

/// Reductions over the last coordinate, each in one pass, and functions of their results.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// The loop; the last dimension is reduced.
    pub extents: Vec<Dim>,
    /// In order; later reductions read the result of reduction `n` as `Value(n)`.
    pub reductions: Vec<Reduced>,
    /// True for outputs that are written once per row, after the reductions: index and value do not depend on the last
    /// coordinate. Others are written for every point.
    row_outputs: Vec<bool>,
}

impl Reduction {
    /// Supports nests of dense axes with reductions over the last one, with one factor each.
    ///
    /// # Errors
    /// [`NotLowerable`] for another nest.
    pub fn of(nest: &Nest) -> Result<Self, NotLowerable> {
        let extents = dense(nest, nest.axes.len())?;
        let (last, Some(extent)) = (extents.len() as u8 - 1, extents.last()) else {
            return Err("has a loop without dimensions".into());
        };
        check_count("results of reductions", nest.accumulations.len(), MAX_VALUES)?;
        let mut reductions = vec![];
        for sum in &nest.accumulations {
            let &[value] = sum.factors.as_slice() else { return Err("it contracts within a reduction".into()) };
            if sum.axis != last {
                return Err("its reductions differ in shape or axis".into());
            }
            reductions.push(Reduced { op: sum.op, axis: last, extent: extent.clone(), value });
        }
        let per_row = |output: &Output| !depends(nest, output.roots(), 1 << last) && output.columns.is_none();
        let row_outputs: Vec<bool> = nest.outputs.iter().map(per_row).collect();
        let outputs =
            || nest.outputs.iter().zip(&row_outputs).filter(|(_, by_row)| !**by_row).map(|(output, _)| output);
        if outputs().any(|output| output.columns.is_some()) {
            return Err("an output is a part of the reduced axis".into());
        }
        let goes_down_columns = |output: &Output| {
            let [first, whole] =
                [&output.index[..1.min(output.index.len())], &output.index].map(|index| nest.body.dag.access(index));
            first.moves(last) && !whole.columns_move(last)
        };
        if extent.as_const() != Some(1) && outputs().any(goes_down_columns) {
            return Err("it would write a matrix column by column".into());
        }
        Ok(Self { reductions, row_outputs, extents })
    }
}

impl Bound<'_, Reduction> {
    /// Outputs that are written for every point, after the reductions.
    pub fn outputs(&self) -> Vec<Output> {
        self.written(false)
    }

    /// Outputs that are written once per row, after the reductions: index and value do not depend on the last
    /// coordinate.
    pub fn row_outputs(&self) -> Vec<Output> {
        self.written(true)
    }

    fn written(&self, by_row: bool) -> Vec<Output> {
        let outputs = self.nest.outputs.iter().zip(&self.schedule.row_outputs);
        outputs.filter(|(_, is_by_row)| **is_by_row == by_row).map(|(output, _)| output.clone()).collect()
    }
}

impl Analysis for Bound<'_, Reduction> {
    fn count(&self, sizes: &Sizes) -> Count {
        let [all, rows] = [0, 1].map(|inner| Domain::of(self.nest, sizes, self.nest.rank() - inner));
        let mut tally = Tally::new(self.nest, sizes);
        for reduction in &self.reductions {
            tally.add(&[reduction.value], &all);
            tally.operations(all.all());
        }
        tally.write(&self.outputs(), &all, all.columns());
        tally.write(&self.row_outputs(), &rows, rows.columns());
        tally.finish()
    }
}
