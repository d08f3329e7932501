//! Right operands of matmuls, packed into panels.

use super::tiles::Tiles;
use super::{AHEAD, Matrix, multiply};
use crate::kernels::arch::Arch;
use crate::kernels::error::CpuError;
use crate::kernels::kept::Footprint;
use crate::kernels::scratch::{Buffer, Line};
use crate::kernels::stream::prefetch;
use crate::kernels::tasks;
use bytemuck::cast_slice;
use pulp::{Simd, WithSimd};
use rewire_graph::DType;
use std::slice::ChunksExactMut;

/// Maximum number of columns in a panel: the width of the library's microkernel for AVX-512.
const PANEL: usize = 64;
/// Maximum number of rows that the library multiplies without repacking the panel.
const SLICE: usize = 48;

/// A right operand, packed into panels of adjacent columns, zero-padded.
#[derive(Clone, Debug, Default)]
pub(in crate::kernels) struct PackedRhs {
    data: Buffer,
    rows: usize,
    columns: usize,
    pub(super) width: usize,
}

impl Footprint for PackedRhs {
    fn bytes(&self) -> u64 {
        self.data.bytes() as u64
    }
}

impl PackedRhs {
    /// The number of columns per panel, for a matrix with `columns` columns.
    pub(in crate::kernels) fn width(columns: usize) -> usize {
        columns.next_multiple_of(16).clamp(16, PANEL)
    }

    /// Packs a matrix, with all threads.
    pub(in crate::kernels) fn new(matrix: Matrix<'_>) -> Result<Self, CpuError> {
        let width = Self::width(matrix.columns);
        let data = Buffer::lasting(matrix.rows * matrix.columns.next_multiple_of(width))?;
        Self { data, ..Self::default() }.packed(matrix)
    }

    /// [`PackedRhs::new`] for one run.
    pub(in crate::kernels) fn for_run(matrix: Matrix<'_>) -> Result<Self, CpuError> {
        Self::default().packed(matrix)
    }

    fn packed(mut self, matrix: Matrix<'_>) -> Result<Self, CpuError> {
        let tasks = self.reshape(matrix)?.enumerate().collect();
        let width = Self::width(matrix.columns);
        let pack = |(): &mut (), (n, panel): (usize, &mut [f32])| {
            pack_panel(panel, n * width, width, matrix);
            Ok(())
        };
        tasks::for_each(tasks, || Ok(()), pack)?;
        Ok(self)
    }

    /// Packs another matrix into the same memory, with this thread.
    pub(in crate::kernels) fn pack(&mut self, matrix: Matrix<'_>) -> Result<(), CpuError> {
        let width = Self::width(matrix.columns);
        self.reshape(matrix)?.enumerate().for_each(|(n, panel)| pack_panel(panel, n * width, width, matrix));
        Ok(())
    }

    /// The elements of a panel from `column` on, and the distance of its rows.
    pub(in crate::kernels) fn strip(&self, column: usize) -> (&[f32], usize) {
        let width = self.width.max(1);
        let panel = column / width * width;
        (self.panels().get(panel * self.rows + column - panel..).unwrap_or(&[]), width)
    }

    pub(super) fn panels(&self) -> &[f32] {
        self.data.all()
    }

    /// Allocates memory for a matrix; returns its panels.
    fn reshape(&mut self, matrix: Matrix<'_>) -> Result<ChunksExactMut<'_, f32>, CpuError> {
        let width = Self::width(matrix.columns);
        (self.rows, self.columns, self.width) = (matrix.rows, matrix.columns, width);
        let data = self.data.floats(matrix.rows * matrix.columns.next_multiple_of(width))?;
        Ok(data.chunks_exact_mut((matrix.rows * width).max(1)))
    }

    /// `out = a b`, or `out += a b` if `accumulate`, for the columns `column..end` and the rows of `b` from `row` on.
    /// `column` is a multiple of 16. Writes multiples of 16 columns to `out`, whose rows are `stride` apart.
    pub(in crate::kernels) fn multiply(
        &self,
        out: &mut [f32],
        stride: usize,
        a: Matrix<'_>,
        (column, end, row): (usize, usize, usize),
        accumulate: bool,
    ) -> Result<(), CpuError> {
        let (width, end) = (self.width.max(1), end.min(self.columns));
        debug_assert!(row + a.columns <= self.rows, "{} terms from {row} on, of {}", a.columns, self.rows);
        let (panels, columns) = (self.panels(), (column, end));
        let tiles = Tiles { a, panels, depth: self.rows, width, row, columns, out: &mut *out, stride, accumulate };
        if tiles.multiply(Arch::chosen()) {
            return Ok(());
        }
        let mut first = column;
        while first < end {
            let panel = first / width * width;
            let elements = panels.get(panel * self.rows..).unwrap_or(&[]);
            let b = Matrix::new(elements, (self.rows, width), (width, 1))
                .ok_or_else(|| CpuError::Content { dtype: DType::F32, shape: vec![self.rows, self.columns] })?;
            let columns = (panel + width - first).min((end - first).next_multiple_of(16));
            let b = b.part((row, first - panel), (a.columns, columns));
            for start in (0..a.rows).step_by(SLICE) {
                let slice = a.part((start, 0), (SLICE, a.columns));
                let target = out.get_mut(start * stride + first - column..).unwrap_or(&mut []);
                multiply(target, stride, slice, b, accumulate)?;
            }
            first = panel + width;
        }
        Ok(())
    }
}

fn pack_panel(panel: &mut [f32], first: usize, width: usize, matrix: Matrix<'_>) {
    let columns = width.min(matrix.columns - first);
    let block = matrix.part((0, first), (matrix.rows, columns));
    if block.column_stride == 1 {
        for (line, source) in panel.chunks_exact_mut(width).zip(block.data.chunks(block.row_stride.max(1))) {
            prefetch(source.get(..columns).unwrap_or(&[]), AHEAD * block.row_stride);
            let (values, zeros) = line.split_at_mut(columns);
            values.iter_mut().zip(source).for_each(|(to, &from)| *to = from);
            zeros.fill(0.0);
        }
        return;
    }
    if columns < width {
        panel.fill(0.0);
    }
    if !Arch::chosen().dispatch_fused(Transpose { panel: &mut *panel, width, block }) {
        parts(panel, width, block).for_each(|(lines, part)| copy_columns(lines, width, part, 0));
    }
}

/// Parts of a panel of `width` columns that are as long as a cache line.
#[inline(always)]
fn parts<'p>(
    panel: &'p mut [f32],
    width: usize,
    block: Matrix<'p>,
) -> impl Iterator<Item = (&'p mut [f32], Matrix<'p>)> {
    let lines = panel.chunks_mut(Line::FLOATS * width).enumerate();
    lines.map(move |(n, lines)| (lines, block.part((n * Line::FLOATS, 0), (Line::FLOATS, block.columns))))
}

/// Copies a matrix with any column stride to a panel, by vectors.
struct Transpose<'a> {
    panel: &'a mut [f32],
    width: usize,
    block: Matrix<'a>,
}

impl WithSimd for Transpose<'_> {
    /// Always true.
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        for (lines, part) in parts(self.panel, self.width, self.block) {
            let done = transpose_vectors(simd, lines, self.width, part);
            copy_columns(lines, self.width, part, done);
        }
        true
    }
}

/// Transposes contiguous columns, [`SIDE`] at a time, if they are a cache line long. Returns the number of columns that are done.
#[inline(always)]
fn transpose_vectors<S: Simd>(simd: S, panel: &mut [f32], width: usize, block: Matrix<'_>) -> usize {
    if block.row_stride != 1 || block.rows < Line::FLOATS {
        return 0;
    }
    let (quads, pitch, lanes) = (panel.as_chunks_mut::<SIDE>().0, width / SIDE, S::F32_LANES / SIDE);
    for quad in 0..block.columns / SIDE {
        let first = quad * SIDE;
        let column =
            |n: usize| block.data.get((first + n) * block.column_stride..).and_then(|rest| rest.get(..Line::FLOATS));
        let (Some(a), Some(b), Some(c), Some(d)) = (column(0), column(1), column(2), column(3)) else { return first };
        let columns = [a, b, c, d];
        columns.iter().for_each(|column| prefetch_column(column, block.column_stride));
        let [a, b, c, d] = columns.map(|column| S::as_simd_f32s(column).0);
        for (part, (((&a, &b), &c), &d)) in a.iter().zip(b).zip(c).zip(d).enumerate() {
            // Transposes the quads at the same place of all vectors.
            let transposed = simd.interleave_shfl_f32s([a, b, c, d]);
            for (n, &values) in cast_slice::<S::f32s, [f32; SIDE]>(&transposed).iter().enumerate() {
                let row = part * S::F32_LANES + n % lanes * SIDE + n / lanes;
                if let Some(to) = quads.get_mut(row * pitch + quad) {
                    *to = values;
                }
            }
        }
    }
    block.columns / SIDE * SIDE
}

#[inline(always)]
fn prefetch_column(column: &[f32], stride: usize) {
    prefetch(column, AHEAD * stride);
    // The next line of a long column is read only after a line of every other column of the panel.
    prefetch(column, 2 * Line::FLOATS);
}

/// Copies a matrix with any column stride to a panel, from column `start` on. Transposes blocks if columns are contiguous.
fn copy_columns(panel: &mut [f32], width: usize, block: Matrix<'_>, start: usize) {
    for first in (start..block.columns).step_by(SIDE) {
        let from = block.part((0, first), (block.rows, SIDE));
        let whole = if from.row_stride == 1 && from.columns == SIDE { from.rows / SIDE * SIDE } else { 0 };
        let column = |n: usize| from.data.get(n * from.column_stride..).and_then(|column| column.get(..whole));
        if let (Some(a), Some(b), Some(c), Some(d)) = (column(0), column(1), column(2), column(3)) {
            [a, b, c, d].iter().for_each(|column| prefetch_column(column, from.column_stride));
            transpose(panel, (width, first), [a, b, c, d].map(|column| column.as_chunks().0));
        }
        for (row, line) in panel.chunks_exact_mut(width).enumerate().skip(whole) {
            for (column, to) in line.iter_mut().skip(first).take(from.columns).enumerate() {
                *to = from.data[row * from.row_stride + column * from.column_stride];
            }
        }
    }
}

/// Rows and columns transposed at once.
const SIDE: usize = 4;

/// Transposes columns into lines of `width` elements, from element `first` of each line on.
#[inline(always)]
fn transpose(lines: &mut [f32], (width, first): (usize, usize), [a, b, c, d]: [&[[f32; SIDE]]; SIDE]) {
    for ((((lines, a), b), c), d) in lines.chunks_exact_mut(SIDE * width).zip(a).zip(b).zip(c).zip(d) {
        for (row, line) in lines.chunks_exact_mut(width).enumerate() {
            if let Some(to) = line.get_mut(first..).and_then(|to| to.first_chunk_mut()) {
                *to = [a[row], b[row], c[row], d[row]];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::product::tests::noise;

    #[test]
    fn panels_have_the_elements_of_matrices_of_any_size_and_stride() {
        for (rows, columns) in [(1, 1), (3, 70), (16, 4), (17, 5), (31, 64), (40, 67), (64, 130), (100, 19)] {
            let data = noise((rows + 3) * (columns + 5), 1);
            for strides in [(columns + 5, 1), (1, rows), (1, rows + 3), (2, 2 * rows + 1)] {
                let Some(matrix) = Matrix::new(&data, (rows, columns), strides) else { continue };
                // Reused memory has other values in the columns of padding.
                Buffer::default().floats(data.len() + 64 * rows).unwrap().fill(f32::NAN);
                let packed = PackedRhs::for_run(matrix).unwrap();
                let width = packed.width;
                for (row, column) in
                    (0..rows).flat_map(|row| (0..columns.next_multiple_of(width)).map(move |c| (row, c)))
                {
                    let found = packed.panels()[column / width * width * rows + row * width + column % width];
                    let expected = if column < columns { data[row * strides.0 + column * strides.1] } else { 0.0 };
                    assert_eq!(found, expected, "{rows}x{columns}, {strides:?}: row {row}, column {column}");
                }
            }
        }
    }
}
