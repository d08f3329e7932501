//! Batched matmuls of small matrices, several batch entries at once.

use super::arch::{Arch, mul_add};
use super::coords::Coords;
use super::error::CpuError;
use super::joined::JoinedMachine;
use super::lanes::{LANES, ROWS};
use super::machine::{AccumulatorLanes, RowInputs};
use super::memory::Memory;
use super::operand::{Env, count};
use super::panel::Joined;
use super::program::AccumulatorValue;
use super::run::run;
use super::scratch::room;
use super::store::{Blocks, Stores, Target, Writer};
use super::{Scheduled, tasks};
use pulp::{Simd, WithSimd};
use rewire_graph::pointwise::{Dag, Expr};
use rewire_graph::{Dim, Scalar};
use rewire_graph_rewrite::plan::{Extent, Output};
use rewire_graph_rewrite::schedule::{Bound, Product};

/// Maximum number of elements of an operand or of results computed at once.
const GROUP: usize = 1 << 14;
/// Rows of results are padded to a multiple of this.
const PITCH: usize = 16;
/// Rows of the register tile.
const TILE: usize = 4;

/// A batched matmul of small matrices with constant extents.
#[derive(Clone, Debug)]
pub(super) struct CompiledSmallProduct {
    batch: Vec<Dim>,
    shape: Shape,
    a: Joined,
    b: Joined,
    stores: Stores,
    along: Along,
}

/// The contiguous axis of the results.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Along {
    Columns,
    /// The matmul is computed transposed.
    Rows,
    Entries,
}

/// Extents of a product.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    columns: usize,
    depth: usize,
}

struct Worker<'a> {
    a: JoinedMachine<'a>,
    b: JoinedMachine<'a>,
    writer: Writer<'a>,
    coords: Coords,
    left: Vec<f32>,
    right: Vec<f32>,
    /// The right operand of an entry, row-major with row stride [`Shape::pitch`].
    padded: Vec<f32>,
    sums: Vec<f32>,
    by_entry: Vec<f32>,
}

impl Shape {
    fn pitch(self) -> usize {
        self.columns.next_multiple_of(PITCH)
    }

    /// Number of batch entries computed at once.
    fn entries(self) -> usize {
        let most = [self.rows * self.depth, self.depth * self.columns, self.rows * self.pitch()];
        (GROUP / most.into_iter().max().unwrap_or(0).max(1)).clamp(1, ROWS)
    }
}

impl CompiledSmallProduct {
    /// `None` for other matmuls.
    pub(super) fn new(kernel: &Bound<'_, Product>) -> Result<Option<Self>, CpuError> {
        let (body, outputs) = (&kernel.nest.body, &kernel.nest.outputs);
        let constant = |extent: &Extent| extent.dense().and_then(Dim::as_const);
        let (Some(rows), Some(columns), Some(depth)) = (constant(&kernel.m), kernel.n.as_const(), constant(&kernel.k))
        else {
            return Ok(None);
        };
        let (row, column) = (kernel.row(), kernel.column());
        let is_shared = body.dag.coords(kernel.b) & ((1 << row) - 1) == 0;
        let is_whole = outputs.iter().all(|output| output.columns.is_none());
        let is_small = (1..=LANES).contains(&(rows.max(PITCH) * columns.max(PITCH))) && kernel.batch.len() < 15;
        if is_shared || !is_whole || !is_small || !kernel.stats.is_empty() {
            return Ok(None);
        }
        let sum = |dag: &Dag, id| match *dag.expr(id) {
            Expr::Value(_) if dag.scalar(id) == Scalar::F32 => Some(AccumulatorValue::Lane(0)),
            _ => None,
        };
        let runs_along = |axis: u8| {
            let runs = |output: &Output| run(&body.dag, &output.index, (output.dtype, &output.shape), axis).is_some();
            outputs.iter().all(runs)
        };
        let along = match kernel.batch.len() {
            _ if runs_along(column) => Along::Columns,
            1 if runs_along(0) => Along::Entries,
            _ if runs_along(row) => Along::Rows,
            _ => Along::Columns,
        };
        let (shape, [left, right]) = match along {
            Along::Rows => (Shape { rows: columns, columns: rows, depth }, [(kernel.b, column), (kernel.a, row)]),
            Along::Columns | Along::Entries => (Shape { rows, columns, depth }, [(kernel.a, row), (kernel.b, column)]),
        };
        let a = Joined::new(body, left.0, (left.1, kernel.depth), (shape.rows, depth))?;
        let b = Joined::new(body, right.0, (kernel.depth, right.1), (depth, shape.columns))?;
        let Some((a, b)) = a.zip(b) else { return Ok(None) };
        let outer: Vec<Dim> = kernel.batch.iter().cloned().chain([rows.into()]).collect();
        let (axis, outer) = match along {
            Along::Columns => (column, Some(&outer[..])),
            Along::Rows => (row, None),
            Along::Entries => (0, None),
        };
        let stores = Stores::compile(body, outputs, axis, outer, &sum)?;
        Ok(Some(Self { batch: kernel.batch.clone(), shape, a, b, stores, along }))
    }

    /// Computes the products of a group of entries, from `first` on.
    fn group(
        &self,
        worker: &mut Worker<'_>,
        targets: &mut [Target<'_>],
        batch: &[usize],
        (first, count): (usize, usize),
    ) -> Result<(), CpuError> {
        let Shape { rows, columns, depth } = self.shape;
        let pitch = self.shape.pitch();
        worker.coords.unravel(first, count, batch);
        let inputs = RowInputs { rows: count, coords: worker.coords.all(), ..RowInputs::default() };
        let left = room(&mut worker.left, count * rows * depth)?;
        worker.a.fill(inputs, 0..rows * depth, left, rows * depth);
        let right = room(&mut worker.right, count * depth * columns)?;
        worker.b.fill(inputs, 0..depth * columns, right, depth * columns);
        let padded = room(&mut worker.padded, depth * pitch)?;
        let sums = room(&mut worker.sums, count * rows * pitch)?;
        let strides = if self.a.by_column { (1, rows) } else { (depth, 1) };
        let factors = left.chunks_exact((rows * depth).max(1)).zip(right.chunks_exact((depth * columns).max(1)));
        for ((a, b), sums) in factors.zip(sums.chunks_exact_mut(rows * pitch)) {
            pad(padded, pitch, b, (columns, self.b.by_column));
            Arch::chosen().dispatch(Multiply { sums, a, strides, b: padded, pitch, depth });
        }
        match self.along {
            Along::Entries => self.write_entries(worker, targets, (first, count))?,
            Along::Columns | Along::Rows => self.write_rows(worker, targets, batch, (first, count)),
        }
        Ok(())
    }

    /// Writes the results row by row.
    fn write_rows(
        &self,
        worker: &mut Worker<'_>,
        targets: &mut [Target<'_>],
        batch: &[usize],
        (first, count): (usize, usize),
    ) {
        let Worker { writer, coords, sums, .. } = worker;
        let (rows, stride) = (self.shape.rows, self.shape.pitch());
        // With transposed results, the row and column coordinates are swapped.
        let before = if self.along == Along::Rows { &[1][..] } else { &[] };
        let extents: Vec<usize> = batch.iter().chain(before).copied().chain([rows]).collect();
        for start in (0..count * rows).step_by(ROWS) {
            let (row, rows) = (first * rows + start, ROWS.min(count * rows - start));
            coords.unravel(row, rows, &extents);
            let data = sums.get(start * stride..).unwrap_or(&[]);
            let lanes = &[AccumulatorLanes { data, stride, origin: 0 }];
            let inputs = RowInputs { rows, coords: coords.all(), lanes, ..RowInputs::default() };
            writer.rows(targets, inputs, row, 0..self.shape.columns);
        }
    }

    /// Writes results by position, each for all entries of the group.
    fn write_entries(
        &self,
        worker: &mut Worker<'_>,
        targets: &mut [Target<'_>],
        (first, count): (usize, usize),
    ) -> Result<(), CpuError> {
        let Worker { writer, coords, sums, by_entry, .. } = worker;
        let (Shape { rows, columns, .. }, pitch) = (self.shape, self.shape.pitch());
        let data = room(by_entry, rows * columns * count)?;
        for (place, entries) in data.chunks_exact_mut(count.max(1)).enumerate() {
            let from = sums.get(place / columns * pitch + place % columns..).unwrap_or(&[]);
            entries.iter_mut().zip(from.iter().step_by(rows * pitch)).for_each(|(to, from)| *to = *from);
        }
        for start in (0..rows * columns).step_by(ROWS) {
            let places = ROWS.min(rows * columns - start);
            coords.unravel(start, places, &[1, rows, columns]);
            let data = data.get(start * count..).unwrap_or(&[]);
            let lanes = &[AccumulatorLanes { data, stride: count, origin: first }];
            let inputs = RowInputs { rows: places, coords: coords.all(), lanes, ..RowInputs::default() };
            writer.rows(targets, inputs, start, first..first + count);
        }
        Ok(())
    }
}

impl Scheduled for CompiledSmallProduct {
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError> {
        let batch = env.extents(&self.batch, "the batch")?;
        let (entries, size) = (count(&batch, "the batch")?, self.shape.entries());
        let rows = self.shape.rows;
        let blocks = Blocks { rows: entries * rows, width: self.shape.columns, size: size * rows, across: false };
        tasks::for_each_block(
            self.stores.iter(),
            outputs,
            blocks,
            || {
                Ok(Worker {
                    a: self.a.line.machine(env)?,
                    b: self.b.line.machine(env)?,
                    writer: self.stores.writer(env)?,
                    coords: Coords::new(batch.len() + 3)?,
                    left: vec![],
                    right: vec![],
                    padded: vec![],
                    sums: vec![],
                    by_entry: vec![],
                })
            },
            |worker, targets, n| {
                let first = n * size;
                self.group(worker, targets, &batch, (first, size.min(entries - first)))
            },
        )
    }
}

/// Copies a matrix with `columns` columns to rows of length `pitch`.
fn pad(padded: &mut [f32], pitch: usize, matrix: &[f32], (columns, by_column): (usize, bool)) {
    let depth = matrix.len() / columns.max(1);
    for (k, line) in padded.chunks_exact_mut(pitch).enumerate() {
        let line = line.iter_mut().take(columns);
        match by_column {
            true => line.zip(matrix.iter().skip(k).step_by(depth)).for_each(|(to, from)| *to = *from),
            false => line.zip(&matrix[k * columns..]).for_each(|(to, from)| *to = *from),
        }
    }
}

/// `sums = a b`, with terms added in order.
struct Multiply<'a> {
    sums: &'a mut [f32],
    a: &'a [f32],
    /// Row and column strides of `a`, in elements.
    strides: (usize, usize),
    b: &'a [f32],
    pitch: usize,
    depth: usize,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sums, a, strides, b, pitch, depth } = self;
        for (n, sums) in sums.chunks_mut(TILE * pitch).enumerate() {
            let a = a.get(n * TILE * strides.0..).unwrap_or(&[]);
            if sums.len() == TILE * pitch {
                multiply::<S, TILE>(simd, sums, (a, strides), (b, pitch), depth);
                continue;
            }
            for (row, sums) in sums.chunks_mut(pitch).enumerate() {
                multiply::<S, 1>(simd, sums, (a.get(row * strides.0..).unwrap_or(&[]), strides), (b, pitch), depth);
            }
        }
    }
}

/// `R` rows of a matmul.
#[inline(always)]
fn multiply<S: Simd, const R: usize>(
    simd: S,
    sums: &mut [f32],
    (a, (row_stride, column_stride)): (&[f32], (usize, usize)),
    (b, pitch): (&[f32], usize),
    depth: usize,
) {
    for column in (0..pitch).step_by(S::F32_LANES) {
        let mut vectors = [simd.splat_f32s(0.0); R];
        for (k, line) in b.chunks_exact(pitch).take(depth).enumerate() {
            let [right, ..] = S::as_simd_f32s(&line[column..]).0 else { return };
            for (row, vector) in vectors.iter_mut().enumerate() {
                let left = simd.splat_f32s(a[row * row_stride + k * column_stride]);
                *vector = mul_add(simd, left, *right, *vector);
            }
        }
        for (row, vector) in vectors.into_iter().enumerate() {
            if let [sum, ..] = S::as_mut_simd_f32s(&mut sums[row * pitch + column..]).0 {
                *sum = vector;
            }
        }
    }
}
