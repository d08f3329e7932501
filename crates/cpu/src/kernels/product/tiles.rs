//! The microkernel for right operands in panels.

use super::{Matrix, blocks_of_sum};
use crate::kernels::arch::{Arch, mul_add};
use crate::kernels::stream::prefetch_near;
use pulp::{Simd, WithSimd};

/// Rows of a register tile.
const ROWS: usize = 6;
/// Columns of panels are a multiple of this.
const STRIP: usize = 16;
/// Rows of a panel to prefetch ahead: a panel is larger than the first cache, and the processor waits for the second one otherwise.
const AHEAD: usize = 8;

/// A product with panels: `out = a b`, or `out += a b` if `accumulate`.
pub(super) struct Tiles<'a> {
    pub a: Matrix<'a>,
    /// The panels of `b`: `depth` rows of `width` floats each.
    pub panels: &'a [f32],
    pub depth: usize,
    pub width: usize,
    /// The first row of `b` that counts.
    pub row: usize,
    /// The first column, a multiple of [`STRIP`], and the end of the columns.
    pub columns: (usize, usize),
    pub out: &'a mut [f32],
    /// Distance of the rows of `out`.
    pub stride: usize,
    pub accumulate: bool,
}

impl Tiles<'_> {
    /// Computes the product. Returns false, without a write, if the instruction set has another microkernel.
    pub(super) fn multiply(self, arch: Arch) -> bool {
        self.a.columns > 0 && arch.dispatch_fused(self)
    }

    /// The tile of `R` rows from `row` on, for `columns` columns from `column` on, which are all in one panel.
    #[inline(always)]
    fn rows<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        a: Matrix<'_>,
        (row, depth): (usize, usize),
        accumulate: bool,
    ) {
        let (mut first, end) = self.columns;
        while first < end {
            let panel = first / self.width * self.width;
            let columns = (panel + self.width - first).min((end - first).next_multiple_of(STRIP));
            let panel = self.panels.get(panel * self.depth + depth * self.width + first - panel..).unwrap_or(&[]);
            let Some(b) = Matrix::new(panel, (a.columns, columns), (self.width, 1)) else { return };
            let Some(out) = self.out.get_mut(row * self.stride + first - self.columns.0..) else { return };
            strips::<S, R>(simd, a, b, (out, self.stride), accumulate);
            first += columns;
        }
    }
}

impl WithSimd for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for (start, depth) in blocks_of_sum(self.a.columns) {
            let (row, accumulate) = (self.row + start, self.accumulate || start > 0);
            let mut first = 0;
            while first < self.a.rows {
                let a = self.a.part((first, start), (ROWS, depth));
                // Fewer sizes of tiles are less code.
                let rows = match a.rows {
                    ROWS => ROWS,
                    4.. => 4,
                    rows => rows,
                };
                match rows {
                    ROWS => self.rows::<S, ROWS>(simd, a, (first, row), accumulate),
                    4 => self.rows::<S, 4>(simd, a, (first, row), accumulate),
                    3 => self.rows::<S, 3>(simd, a, (first, row), accumulate),
                    2 => self.rows::<S, 2>(simd, a, (first, row), accumulate),
                    _ => self.rows::<S, 1>(simd, a, (first, row), accumulate),
                }
                first += rows;
            }
        }
    }
}

/// The tiles of `R` rows of `a` and all columns of `b`.
#[inline(always)]
fn strips<S: Simd, const R: usize>(
    simd: S,
    a: Matrix<'_>,
    b: Matrix<'_>,
    (out, stride): (&mut [f32], usize),
    accumulate: bool,
) {
    // A tile of 24 vectors for 32 registers, of 12 for 16.
    let most = if S::F32_LANES < 16 { 2 } else { 4 };
    let mut first = 0;
    while first < b.columns {
        let vectors = ((b.columns - first) / S::F32_LANES).clamp(1, most);
        let strip = b.part((0, first), (b.rows, vectors * S::F32_LANES));
        let Some(out) = out.get_mut(first..) else { return };
        match vectors {
            1 => tile::<S, R, 1>(simd, a, strip, (out, stride), accumulate),
            2 => tile::<S, R, 2>(simd, a, strip, (out, stride), accumulate),
            3 => tile::<S, R, 3>(simd, a, strip, (out, stride), accumulate),
            _ => tile::<S, R, 4>(simd, a, strip, (out, stride), accumulate),
        }
        first += vectors * S::F32_LANES;
    }
}

/// The first `R` rows of `a` times `V` vectors of columns.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    a: Matrix<'_>,
    b: Matrix<'_>,
    (out, stride): (&mut [f32], usize),
    accumulate: bool,
) {
    let fits = a.rows >= R && b.rows == a.columns && b.columns == V * S::F32_LANES && b.column_stride == 1;
    debug_assert!(fits, "{R} rows of {a:?} times {V} vectors of {b:?}");
    if !fits {
        return;
    }
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    let (mut left, mut right) = (a.data.as_ptr(), b.data.as_ptr());
    for _ in 0..a.columns {
        for line in (0..V * S::F32_LANES).step_by(STRIP) {
            prefetch_near(right.wrapping_add(AHEAD * b.row_stride + line));
        }
        // SAFETY: `right` is at row `n` of `b`, if `left` is at column `n` of `a`. `Matrix` keeps all elements within their
        // slices, and each row of `b` has `V` vectors, which are floats without padding and are read unaligned.
        let row = unsafe { right.cast::<[S::f32s; V]>().read_unaligned() };
        for (n, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the column of `a` has `R` rows.
            let factor = simd.splat_f32s(unsafe { *left.add(n * a.row_stride) });
            for (sum, &value) in sums.iter_mut().zip(&row) {
                *sum = mul_add(simd, factor, value, *sum);
            }
        }
        (left, right) = (left.wrapping_add(a.column_stride), right.wrapping_add(b.row_stride));
    }
    for (line, sums) in out.chunks_mut(stride).zip(sums) {
        let Some(line) = line.get_mut(..V * S::F32_LANES) else { return };
        for (out, sum) in S::as_mut_simd_f32s(line).0.iter_mut().zip(sums) {
            *out = if accumulate { simd.add_f32s(*out, sum) } else { sum };
        }
    }
}
