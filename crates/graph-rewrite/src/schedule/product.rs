use super::reduction::Reduced;
use super::{Analysis, Bound, depends, f16};
use crate::count::{Count, Domain, Sizes, Tally, bits};
use crate::error::NotLowerable;
use rewire_graph::limits::{MAX_STATISTICS, check_count};
use rewire_graph::nest::{Accumulation, Body, Extent, Nest, Output};
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph::{DType, Dim};

/// Rows and columns of a workgroup's output tile.
const TILE: u64 = 64;

/// Largest number of int8 products whose sum fits in 32 bits.
const MOST_STEPS: usize = 1 << 17;

/// A matmul: `sum over k of a(m, k) * b(k, n)` for every batch entry, with a prologue on each operand and an epilogue.
///
/// The result axes are the batch, then `m`, then `n`. A ragged `m` counts within the sample; the batch is then one axis
/// of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Batch dimensions.
    pub batch: Vec<Dim>,
    /// Rows.
    pub m: Extent,
    /// Columns.
    pub n: Dim,
    /// Extent of the reduction.
    pub k: Extent,
    /// The axis of the reduction.
    pub depth: u8,
    /// Statistics of a row of `a`: `Value(position)` in `a` and in later statistics.
    pub stats: Vec<Reduced>,
    /// The left element.
    pub a: ExprId,
    /// The right element.
    pub b: ExprId,
}

impl Product {
    /// Supports nests whose last accumulation is a sum of products of a row factor and a column factor, after
    /// statistics of rows that only the left factor reads.
    ///
    /// # Errors
    /// [`NotLowerable`] for another nest.
    pub fn of(nest: &Nest) -> Result<Self, NotLowerable> {
        let Some((sum, stats)) = nest.accumulations.split_last() else { return Err("it has no product".into()) };
        let &[a, b] = sum.factors.as_slice() else { return Err("it reduces rows of a matmul's result".into()) };
        let Some(axis) = nest.rank().checked_sub(2) else { return Err("a product has less than two axes".into()) };
        let [rows, columns] = [axis, axis + 1].map(|axis| &nest.axes[axis].extent);
        let (Some(n), Some(k)) = (columns.dense(), summed_axis(nest, sum)) else {
            return Err("columns of a product are ragged, or its depth is an axis of a result".into());
        };
        let batch = nest.axes[..axis].iter().map(|axis| axis.extent.dense().cloned()).collect::<Option<Vec<_>>>();
        let batch = batch.ok_or("a product has an axis before its rows that is ragged")?;
        if rows.dense().is_none() && axis != 1 {
            return Err("a product of ragged rows has other axes than samples, rows and columns".into());
        }
        check_count("results of reductions", stats.len(), MAX_STATISTICS)?;
        let stats = statistics(nest, stats)?;
        let (m, n, k) = (rows.clone(), n.clone(), k.clone());
        let product = Self { batch, m, n, k, depth: sum.axis, stats, a, b };
        Bound { nest, schedule: &product }.check()?;
        Ok(product)
    }

    /// The coordinate of rows; the coordinate of columns follows.
    pub fn row(&self) -> u8 {
        self.batch.len() as u8
    }

    /// The coordinate of columns.
    pub fn column(&self) -> u8 {
        self.row() + 1
    }

    /// The position of the accumulator among the values.
    pub fn sum(&self) -> u8 {
        self.stats.len() as u8
    }
}

impl<'n> Bound<'n, Product> {
    /// True if it may accumulate in f16.
    pub fn accumulates_f16(&self) -> bool {
        self.nest.accumulations.last().is_some_and(|sum| sum.dtype == DType::F16)
    }

    /// True if it accumulates in integers.
    pub fn accumulates_integers(&self) -> bool {
        self.nest.accumulations.last().is_some_and(|sum| sum.dtype == DType::I32) && self.has_rows_of_bytes()
    }

    /// True if its factors are stored as [`DType::I8`] with rows along `k`, and sums of their products fit 32 bits.
    pub fn has_rows_of_bytes(&self) -> bool {
        let is_row_of_bytes = |factor: ExprId| {
            let Body { dag, operands, .. } = &self.nest.body;
            let Expr::Load { operand, index } = dag.expr(factor) else { return false };
            let access = dag.access(index);
            let is_stored = operands.get(usize::from(*operand)).is_some_and(|operand| operand.dtype == DType::I8);
            is_stored && access.ends_with(&[self.depth]) && !access.rows_move(self.depth)
        };
        let is_short = self.k.dense().and_then(Dim::as_const).is_some_and(|k| k <= MOST_STEPS && k.is_multiple_of(4));
        is_short && self.stats.is_empty() && [self.a, self.b].into_iter().all(is_row_of_bytes)
    }

    /// The coordinate, one of two, along the columns of a factor's matrices in memory: the second, unless they are read
    /// transposed.
    fn columns_of(&self, factor: ExprId, [first, second]: [u8; 2]) -> u8 {
        let dag = &self.nest.body.dag;
        let is_transposed = |id: ExprId| match dag.expr(id) {
            Expr::Load { index, .. } if index.len() > 1 => {
                let access = dag.access(index);
                access.columns_move(first) && !access.columns_move(second)
            }
            _ => false,
        };
        if dag.reachable(&[factor]).into_iter().any(is_transposed) { first } else { second }
    }

    fn check(&self) -> Result<(), NotLowerable> {
        let (nest, dag) = (self.nest, &self.nest.body.dag);
        let others = |axis: u8| (0..nest.axes.len() as u8).filter(move |&other| other > self.row() && other != axis);
        let strays = |stat: &Reduced| others(stat.axis).any(|other| depends(nest, [stat.value], 1 << other));
        if self.stats.iter().any(strays) {
            return Err("a statistic of a product depends on more than the row".into());
        }
        let reaches = |id: ExprId, coord: u8| dag.coords(id) >> coord & 1 == 1;
        if reaches(self.a, self.column()) || reaches(self.b, self.row()) {
            return Err("a factor of a product depends on the row and the column".into());
        }
        let statistics = (1u32 << self.stats.len()) - 1;
        let mut outputs = nest.outputs.iter().flat_map(Output::roots);
        if dag.values(self.b) != 0 || outputs.any(|id| dag.values(id) & statistics != 0) {
            return Err("statistics of a product's rows are read outside of its left factor".into());
        }
        Ok(())
    }
}

impl Analysis for Bound<'_, Product> {
    fn count(&self, sizes: &Sizes) -> Count {
        let batch: Vec<u64> = self.batch.iter().map(|dim| sizes.extent(dim)).collect();
        let rows = sizes.rows(&self.m, batch.iter().copied().fold(1, u64::saturating_mul));
        let (total, longest) = (rows.iter().sum::<u64>(), rows.iter().copied().max().unwrap_or(0));
        let n = sizes.extent(&self.n);
        let depths = sizes.rows(&self.k, batch.iter().copied().fold(1, u64::saturating_mul));
        let k = depths.iter().sum::<u64>().div_ceil(depths.len().max(1) as u64);
        let (row, column) = (self.row(), self.column());
        // The number of points over some axes, excluding the batch.
        let over = |axes: &[(u8, u64)]| {
            let mut extents = vec![1; self.nest.axes.len()];
            extents[..batch.len()].copy_from_slice(&batch);
            axes.iter().for_each(|&(axis, extent)| extents[usize::from(axis)] = extent);
            Domain::dense(extents)
        };
        // The rows of all samples count as the total number of rows, with or without the axis of samples.
        let joint = match &self.m {
            Extent::Ragged { .. } => vec![(bits(&[0, row]), total), (bits(&[row]), total)],
            Extent::Dense(_) => vec![],
        };
        let with_rows =
            |axis: u8, extent: u64| Domain { joint: joint.clone(), ..over(&[(row, longest), (axis, extent)]) };
        let column_tiles = n.div_ceil(TILE).max(1);
        let row_tiles = rows.iter().map(|rows| rows.div_ceil(TILE)).max().unwrap_or(0).max(1);
        let mut tally = Tally::new(self.nest, sizes);
        for Reduced { axis, extent, value, .. } in &self.stats {
            let points = with_rows(*axis, sizes.extent(extent)).times(column_tiles);
            tally.add(&[*value], &points);
            tally.operations(points.all().saturating_mul(column_tiles));
        }
        tally.add(&[self.a], &with_rows(self.depth, k).times(column_tiles));
        tally.add(&[self.b], &over(&[(self.depth, k), (column, n)]).times(row_tiles));
        tally.write(&self.nest.outputs, &with_rows(column, n), n);
        let products = [2, n, k].into_iter().fold(total, u64::saturating_mul);
        tally.products(products, self.allows_f16_operands());
        tally.finish()
    }

    fn has_products(&self) -> bool {
        true
    }

    fn allows_f16_operands(&self) -> bool {
        let factors = [(self.a, self.row(), self.depth), (self.b, self.depth, self.column())];
        let factors = factors.map(|(factor, first, second)| (factor, self.columns_of(factor, [first, second])));
        f16::suit(&self.nest.body, &factors, &self.stats)
    }
}

/// The reduced axis of an accumulation, if no result has it.
fn summed_axis<'n>(nest: &'n Nest, sum: &Accumulation) -> Option<&'n Extent> {
    nest.axes.get(usize::from(sum.axis)).filter(|axis| axis.summed).map(|axis| &axis.extent)
}

/// The extent of the reduced axis of an accumulation, if it is dense and no result has it.
pub(super) fn summed<'n>(nest: &'n Nest, sum: &Accumulation) -> Option<&'n Dim> {
    summed_axis(nest, sum)?.dense()
}

fn statistics(nest: &Nest, sums: &[Accumulation]) -> Result<Vec<Reduced>, NotLowerable> {
    let statistic = |sum: &Accumulation| match (sum.factors.as_slice(), summed(nest, sum)) {
        (&[value], Some(extent)) => Ok(Reduced { op: sum.op, axis: sum.axis, extent: extent.clone(), value }),
        _ => Err("a reduction is not over the rows of the left operand".into()),
    };
    sums.iter().map(statistic).collect()
}
