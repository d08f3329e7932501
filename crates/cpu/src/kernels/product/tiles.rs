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
    /// Always true.
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> bool {
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
        true
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::product::PackedRhs;
    use crate::kernels::product::tests::noise;

    #[test]
    fn tiles_of_any_size_meet_sums_in_doubles_and_do_not_depend_on_other_rows() {
        let sizes = [(1, 1, 1), (2, 16, 3), (5, 33, 20), (7, 64, 513), (13, 130, 600), (24, 48, 64)];
        for (arch, (m, n, k)) in Arch::all().iter().flat_map(|arch| sizes.map(|size| (*arch, size))) {
            let (left, right) = (noise(m * k, 1), noise(k * n, 2));
            let packed = PackedRhs::new(Matrix::new(&right, (k, n), (n, 1)).unwrap()).unwrap();
            let stride = n.next_multiple_of(64);
            for strides in [(k, 1), (1, m)] {
                let a = Matrix::new(&left, (m, k), strides).unwrap();
                let multiply = |out: &mut [f32], a| {
                    let (panels, depth, width) = (packed.panels(), k, packed.width);
                    Tiles { a, panels, depth, width, row: 0, columns: (0, n), out, stride, accumulate: true }
                        .multiply(arch)
                };
                let mut whole = vec![1.0; m * stride];
                if !multiply(&mut whole, a) {
                    continue;
                }
                for (i, line) in whole.chunks(stride).enumerate() {
                    let mut alone = vec![1.0; stride];
                    assert!(multiply(&mut alone, a.part((i, 0), (1, k))));
                    assert_eq!(line, alone, "{} {m} {n} {k}, row {i}", arch.name());
                    for (j, &found) in line[..n].iter().enumerate() {
                        let factor = |x: usize| f64::from(left[i * strides.0 + x * strides.1]);
                        let sum: f64 = (0..k).map(|x| factor(x) * f64::from(right[x * n + j])).sum();
                        assert!((f64::from(found) - 1.0 - sum).abs() < 1e-4, "{} {m} {n} {k}", arch.name());
                    }
                }
            }
        }
    }
}
