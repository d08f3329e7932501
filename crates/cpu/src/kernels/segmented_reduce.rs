//! Segmented reductions, by offsets of samples or by index.

use super::arch::Arch;
use super::chain::Destination;
use super::coords::Coords;
use super::error::CpuError;
use super::joined::{JoinedMachine, JoinedMatrix};
use super::lanes::{LANES, ROWS, Row, tile_rows};
use super::machine::{AccumulatorLanes, RowInputs, Vm};
use super::memory::Memory;
use super::operand::{Env, count};
use super::program::{AccumulatorValue, Program};
use super::scratch::{room, zeros};
use super::store::{Blocks, Stores, Target, Writer};
use super::totals::{CombineRows, Owners, neutral};
use super::{Compile, Scheduled, tasks};
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use rewire_graph::{Dim, Scalar};
use rewire_graph_rewrite::plan::{Extent, ReduceOp};
use rewire_graph_rewrite::schedule::{Bound, SegmentedReduce};
use std::ops::Range;
use std::sync::Arc;

/// Minimum number of points per task.
const TASK: usize = 1 << 14;
/// Points computed before they are reduced.
const GROUP: usize = 1 << 13;
/// The number of columns per task is a multiple of this.
const COLUMNS: usize = 64;
/// Number of rows per task when indices are computed.
const LOOKUPS: usize = 8 * LANES;

/// Segmented reductions over rows with an epilogue.
#[derive(Clone, Debug)]
pub(super) struct CompiledSegmentedReduce {
    extents: Vec<Dim>,
    rows: Extent,
    row: u8,
    axes: usize,
    /// True for results without columns: each is a scalar.
    is_single: bool,
    sums: Vec<(ReduceOp, Terms)>,
    /// The elements of all [`Terms::Rows`].
    by_row: Program,
    index: Option<Program>,
    stores: Stores,
}

/// How the elements of a reduction are computed.
#[derive(Clone, Debug)]
enum Terms {
    /// Row by row, as this root of [`CompiledSegmentedReduce::by_row`]. A tile may have rows of several results.
    Rows(usize),
    /// All rows of a result as one line; the number is rows per result.
    Joined(JoinedMatrix, usize),
}

enum TermMachine<'a> {
    Rows(usize),
    Joined(JoinedMachine<'a>, usize),
}

/// The rows to reduce, ordered by result.
struct Rows {
    /// The offset of each entry's first row, then the end of the last entry.
    starts: Vec<usize>,
    /// Row numbers; if `None`, rows of each entry are numbered from 0.
    numbers: Option<Vec<i32>>,
}

/// The results in one run.
struct Results {
    /// Extents of the dimensions before the columns.
    outer: Vec<usize>,
    /// Columns per result.
    width: usize,
    /// Results per entry of the first dimension.
    inner: usize,
    /// Row stride of the totals.
    pitch: usize,
    /// True for scalar results.
    is_single: bool,
    blocks: Blocks,
}

struct Worker<'a> {
    sums: Vec<(ReduceOp, TermMachine<'a>)>,
    by_row: Vm<'a>,
    writer: Writer<'a>,
    coords: Coords,
    /// Elements of joined terms, for results of a tile.
    lines: Vec<f32>,
    /// For each reduction, the totals of the block's results.
    totals: Vec<Vec<f32>>,
}

impl Compile for Bound<'_, SegmentedReduce> {
    fn compile(&self) -> Result<Arc<dyn Scheduled>, CpuError> {
        Ok(Arc::new(CompiledSegmentedReduce::new(self)?))
    }
}

impl CompiledSegmentedReduce {
    pub(super) fn new(kernel: &Bound<'_, SegmentedReduce>) -> Result<Self, CpuError> {
        let unsupported =
            |reason: &str| CpuError::Unsupported { kernel: "fold", reason: format!("it has {reason} dimensions") };
        let (body, dag) = (&kernel.nest.body, &kernel.nest.body.dag);
        let (_, outer) = kernel.extents.split_last().ok_or_else(|| unsupported("no"))?;
        if kernel.nest.axes.len() > 16 {
            return Err(unsupported("too many"));
        }
        let column = outer.len() as u8;
        let none = |_: &Dag, _: ExprId| -> Option<AccumulatorValue> { None };
        let program = |roots: &[ExprId], axis| Program::compile(dag, &body.operands, roots, axis, &none);
        let sum = |dag: &Dag, id| match *dag.expr(id) {
            Expr::Value(position) if dag.scalar(id) == Scalar::F32 => Some(AccumulatorValue::Lane(position)),
            _ => None,
        };
        // Scalar results are written as columns of one row. Sums over the rows of a matrix are one result with columns.
        let is_single = outer.is_empty() && (kernel.index.is_some() || kernel.rows.dense().is_none());
        let along = if is_single { u8::MAX } else { column };
        let constant = |dim: Option<&Dim>| dim.and_then(Dim::as_const);
        let matrix = match (constant(kernel.rows.dense()), constant(kernel.extents.last())) {
            (Some(rows), Some(columns)) if !outer.is_empty() && kernel.index.is_none() => Some((rows, columns)),
            _ => None,
        };
        let (mut sums, mut by_row) = (vec![], vec![]);
        for sum in &kernel.sums {
            if dag.scalar(sum.value) != Scalar::F32 {
                let reason = "what it combines is not a float".to_owned();
                return Err(CpuError::Unsupported { kernel: "fold", reason });
            }
            let joined = match matrix {
                Some(matrix) => JoinedMatrix::new(body, sum.value, (kernel.row, column), matrix)?.zip(Some(matrix.0)),
                None => None,
            };
            let terms = joined.map_or(Terms::Rows(by_row.len()), |(matrix, rows)| Terms::Joined(matrix, rows));
            by_row.extend(matches!(terms, Terms::Rows(_)).then_some(sum.value));
            sums.push((sum.op, terms));
        }
        Ok(Self {
            extents: kernel.extents.clone(),
            rows: kernel.rows.clone(),
            row: kernel.row,
            axes: kernel.nest.axes.len(),
            is_single,
            sums,
            by_row: program(&by_row, along)?,
            index: kernel.index.map(|index| program(&[index], kernel.row)).transpose()?,
            stores: Stores::compile(body, &kernel.nest.outputs, column, Some(outer), &sum)?,
        })
    }

    /// The rows of each entry of the first dimension, which has `entries` entries.
    fn rows(&self, env: &Env<'_>, entries: usize) -> Result<Rows, CpuError> {
        if let (Some(index), Some(rows)) = (&self.index, self.rows.dense()) {
            return Rows::by_index(&self.look_up(env, index, env.extent(rows, "the rows")?)?, entries);
        }
        let counts = env.rows(&self.rows, entries)?;
        let starts = std::iter::once(0).chain(counts.into_iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        }));
        Ok(Rows { starts: starts.collect(), numbers: None })
    }

    /// The index of every row.
    fn look_up(&self, env: &Env<'_>, index: &Program, rows: usize) -> Result<Vec<i32>, CpuError> {
        let mut found = zeros(rows)?;
        let coords = Coords::new(self.axes)?;
        let inputs = RowInputs { rows: 1, coords: coords.all(), ..RowInputs::default() };
        tasks::for_each(
            found.chunks_mut(LOOKUPS).enumerate().collect(),
            || Vm::new(index, env),
            |machine, (n, found)| {
                machine.rows(inputs);
                for (part, found) in found.chunks_mut(LANES).enumerate() {
                    machine.tile(inputs, n * LOOKUPS + part * LANES, found.len());
                    match machine.ints(0).row(0, found.len()) {
                        Row::Same(index) => found.fill(index),
                        Row::Each(indices) => found.iter_mut().zip(indices).for_each(|(to, from)| *to = *from),
                    }
                }
                Ok(())
            },
        )?;
        Ok(found)
    }

    fn block(
        &self,
        worker: &mut Worker<'_>,
        targets: &mut [Target<'_>],
        (results, rows): (&Results, &Rows),
        n: usize,
    ) -> Result<(), CpuError> {
        let (own, columns) = results.of_block(n);
        for ((op, _), totals) in worker.sums.iter().zip(&mut worker.totals) {
            room(totals, own.len() * results.pitch)?.fill(neutral(*op));
        }
        worker.combine_joined(own.clone(), &columns, results)?;
        if self.sums.iter().any(|(_, terms)| matches!(terms, Terms::Rows(_))) {
            self.combine_rows(worker, own.clone(), &columns, (results, rows));
        }
        worker.write(targets, results, own, columns);
        Ok(())
    }

    /// Reduces [`Terms::Rows`], in tiles with rows of consecutive results.
    fn combine_rows(
        &self,
        worker: &mut Worker<'_>,
        own: Range<usize>,
        columns: &Range<usize>,
        (results, rows): (&Results, &Rows),
    ) {
        let size = (GROUP / columns.len().max(1)).clamp(1, ROWS);
        // For each row of a tile, the index of its result within the block.
        let (mut owners, mut filled) = ([0; ROWS], 0);
        for (place, result) in own.clone().enumerate() {
            let entry = result / results.inner;
            let all = rows.starts[entry]..rows.starts[entry + 1];
            let mut next = all.start;
            while next < all.end {
                let taken = (size - filled).min(all.end - next);
                let tile = filled..filled + taken;
                match &rows.numbers {
                    Some(numbers) => worker.coords.put(self.row, tile.clone(), numbers[next..].iter().copied()),
                    None => worker.coords.put(self.row, tile.clone(), (next - all.start) as i32..),
                }
                owners[tile].fill(place);
                (next, filled) = (next + taken, filled + taken);
                if filled == size {
                    worker.combine(own.start, &owners[..filled], columns, results);
                    filled = 0;
                }
            }
        }
        worker.combine(own.start, &owners[..filled], columns, results);
    }
}

impl Terms {
    fn machine<'a>(&'a self, env: &'a Env<'a>) -> Result<TermMachine<'a>, CpuError> {
        Ok(match self {
            Self::Rows(root) => TermMachine::Rows(*root),
            Self::Joined(matrix, rows) => TermMachine::Joined(matrix.machine(env)?, *rows),
        })
    }
}

impl Scheduled for CompiledSegmentedReduce {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        let extents = env.extents(&self.extents, "the loop")?;
        if count(&extents, "the loop")? == 0 {
            return Ok(());
        }
        let is_matrix = extents.len() == 1 && !self.is_single;
        let entries = if is_matrix { 1 } else { extents.first().copied().unwrap_or(0) };
        let rows = self.rows(env, entries)?;
        let results = Results::new(&extents, self.is_single, &rows);
        tasks::for_each_block(
            self.stores.iter(),
            outputs,
            results.blocks,
            || {
                let sums = self.sums.iter().map(|(op, terms)| Ok((*op, terms.machine(env)?)));
                Ok(Worker {
                    sums: sums.collect::<Result<_, CpuError>>()?,
                    by_row: Vm::new(&self.by_row, env)?,
                    writer: self.stores.writer(env)?,
                    coords: Coords::new(self.axes)?,
                    lines: vec![],
                    totals: vec![vec![]; self.sums.len()],
                })
            },
            |worker, targets, n| self.block(worker, targets, (&results, &rows), n),
        )
    }
}

impl Worker<'_> {
    /// Reduces the rows of a tile into the totals of their results. `owners` are indices of results relative to `first`.
    fn combine(&mut self, first: usize, owners: &[usize], columns: &Range<usize>, results: &Results) {
        let Self { sums, by_row, coords, totals, .. } = self;
        if owners.is_empty() {
            return;
        }
        coords.unravel_each(owners.len(), &results.outer, |row| first + owners[row]);
        let inputs = RowInputs { rows: owners.len(), coords: coords.all(), ..RowInputs::default() };
        let sums = sums.iter().zip(totals).filter_map(|((op, terms), totals)| match terms {
            TermMachine::Rows(root) => Some((*root, Owners { op: *op, totals, pitch: results.pitch, owners })),
            TermMachine::Joined(..) => None,
        });
        combine(by_row, inputs, (columns.start, columns.len()), &mut sums.collect::<Vec<_>>());
    }

    /// Reduces [`Terms::Joined`].
    fn combine_joined(&mut self, own: Range<usize>, columns: &Range<usize>, results: &Results) -> Result<(), CpuError> {
        let Self { sums, coords, lines, totals, .. } = self;
        for ((op, terms), totals) in sums.iter_mut().zip(totals) {
            let TermMachine::Joined(machine, rows) = terms else { continue };
            let (rows, width) = (*rows, results.width);
            let (line, size) = (rows * width, (GROUP / (rows * width).max(1)).clamp(1, ROWS));
            for first in own.clone().step_by(size) {
                let count = size.min(own.end - first);
                let lines = room(lines, count * line)?;
                coords.unravel(first, count, &results.outer);
                let inputs = RowInputs { rows: count, coords: coords.all(), ..RowInputs::default() };
                machine.fill(inputs, 0..line, lines, line);
                let owners: Vec<usize> = (0..count * rows).map(|row| first - own.start + row / rows).collect();
                let owners = Owners { op: *op, totals: &mut *totals, pitch: results.pitch, owners: &owners };
                let values = lines.get(columns.start..).unwrap_or(&[]);
                Arch::chosen().dispatch(CombineRows { values, stride: width, width: columns.len(), owners });
            }
        }
        Ok(())
    }

    /// Runs the epilogue for a block of results and columns.
    fn write(&mut self, targets: &mut [Target<'_>], results: &Results, own: Range<usize>, columns: Range<usize>) {
        let Self { writer, coords, totals, .. } = self;
        if results.is_single {
            let lanes: Vec<_> =
                totals.iter().map(|data| AccumulatorLanes { data, stride: own.len(), origin: own.start }).collect();
            let inputs = RowInputs { rows: 1, coords: coords.all(), lanes: &lanes, ..RowInputs::default() };
            return writer.rows(targets, inputs, 0, own);
        }
        for first in own.clone().step_by(ROWS) {
            let rows = ROWS.min(own.end - first);
            let from = (first - own.start) * results.pitch;
            let lanes = totals.iter().map(|totals| AccumulatorLanes {
                data: totals.get(from..).unwrap_or(&[]),
                stride: results.pitch,
                origin: columns.start,
            });
            let lanes: Vec<_> = lanes.collect();
            coords.unravel(first, rows, &results.outer);
            let inputs = RowInputs { rows, coords: coords.all(), lanes: &lanes, ..RowInputs::default() };
            writer.rows(targets, inputs, first, columns.clone());
        }
    }
}

/// Reduces `width` floats of each row of `inputs`, from column `first` on, for each pair of a root and its owners.
fn combine(
    machine: &mut Vm<'_>,
    inputs: RowInputs<'_>,
    (first, width): (usize, usize),
    sums: &mut [(usize, Owners<'_>)],
) {
    machine.rows(inputs);
    if let [(root, owners)] = sums
        && machine.compute(inputs, (first, width), *root, Destination::Owners(owners.part(0, 0)))
    {
        return;
    }
    for row in (0..inputs.rows).step_by(tile_rows(width)) {
        let part = inputs.part(row, tile_rows(width));
        for start in (0..width).step_by(LANES) {
            let points = (first + start, LANES.min(width - start));
            let straight = sums.iter_mut().position(|(root, owners)| {
                machine.compute(part, points, *root, Destination::Owners(owners.part(row, start)))
            });
            if straight.is_none() {
                machine.tile(part, points.0, points.1);
            }
            for (_, (root, owners)) in sums.iter_mut().enumerate().filter(|(n, _)| Some(*n) != straight) {
                machine.put(part, *root, Destination::Owners(owners.part(row, start)));
            }
        }
    }
}

impl Rows {
    /// Groups rows by their `index`, in ascending order. Rows with an index out of range are omitted.
    fn by_index(index: &[i32], entries: usize) -> Result<Self, CpuError> {
        let entry = |index: i32| usize::try_from(index).ok().filter(|&entry| entry < entries);
        let mut starts = zeros(entries + 1)?;
        index.iter().filter_map(|&index| entry(index)).for_each(|entry| starts[entry + 1] += 1);
        for entry in 0..entries {
            starts[entry + 1] += starts[entry];
        }
        let mut numbers = zeros(starts[entries])?;
        let mut next = starts.clone();
        for (row, &index) in (0..).zip(index) {
            if let Some(entry) = entry(index) {
                numbers[next[entry]] = row;
                next[entry] += 1;
            }
        }
        Ok(Self { starts, numbers: Some(numbers) })
    }
}

impl Results {
    fn new(extents: &[usize], is_single: bool, rows: &Rows) -> Self {
        let (&last, outer) = extents.split_last().unwrap_or((&1, &[]));
        let (outer, width) = if is_single { (extents, 1) } else { (outer, last) };
        let all: usize = outer.iter().product();
        let inner = outer.iter().skip(1).product::<usize>().max(1);
        let combined = rows.starts.last().copied().unwrap_or(0) * inner;
        let each = width * (combined / all.max(1) + 1);
        let across = |width: usize, each: usize| {
            let size = (TASK / each.max(1)).max(1).next_multiple_of(COLUMNS);
            Blocks { rows: 1, width, size, across: true }
        };
        let (blocks, pitch) = match (is_single, all) {
            (true, _) => (across(all, each), 1),
            (false, 1) => {
                let blocks = across(width, combined);
                (blocks, blocks.size.min(width).next_multiple_of(16))
            }
            (false, _) => (Blocks::of_rows(all, each, TASK), width),
        };
        Self { outer: outer.to_vec(), inner, pitch, is_single, blocks, width }
    }

    /// The results and columns of a block.
    fn of_block(&self, n: usize) -> (Range<usize>, Range<usize>) {
        match (self.blocks.block(n), self.is_single, self.blocks.across) {
            ((_, results), true, _) => (results, 0..1),
            ((rows, columns), false, true) => (rows, columns),
            ((rows, _), false, false) => (rows, 0..self.width),
        }
    }
}
