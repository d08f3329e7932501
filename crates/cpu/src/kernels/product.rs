//! Dense matmuls of f32 matrices.

mod packed;
mod tiles;

use super::arch::Arch;
use super::error::CpuError;
use super::scratch::{room, slab, zeros};
use super::stream::prefetch;
use gemm_common::Parallelism;
use rewire_graph::DType;
use std::ops::Range;

pub(super) use packed::PackedRhs;

/// A strided matrix, within its slice by construction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<'a> {
    data: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    row_stride: usize,
    column_stride: usize,
}

/// Number of lines to prefetch ahead. The hardware does not prefetch lines that are far apart.
const AHEAD: usize = 8;
/// Block size of sums. A block is summed in order, then added to the total, so that a row's result does not depend on
/// other rows.
pub(super) const DEPTH: usize = 512;
/// The library uses other summation orders for results of up to this many elements.
const SMALL: usize = 256;
/// The library rounds sums of fewer terms differently, without fused multiply-add.
const LEAST: usize = 3;

impl<'a> Matrix<'a> {
    /// A matrix of `rows` by `columns` elements with these strides; `None` if it exceeds `data`.
    pub(super) fn new(
        data: &'a [f32],
        (rows, columns): (usize, usize),
        (row_stride, column_stride): (usize, usize),
    ) -> Option<Self> {
        let last = rows.saturating_sub(1).checked_mul(row_stride)?;
        let last = last.checked_add(columns.saturating_sub(1).checked_mul(column_stride)?)?;
        let inside = rows == 0 || columns == 0 || last < data.len();
        inside.then_some(Self { data, rows, columns, row_stride, column_stride })
    }

    /// The transposed matrix.
    pub(super) fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// `rows` rows and `columns` columns from `(row, column)` on, clamped to the matrix.
    pub(super) fn part(self, (row, column): (usize, usize), (rows, columns): (usize, usize)) -> Self {
        let (row, column) = (row.min(self.rows), column.min(self.columns));
        let data = self.data.get(row * self.row_stride + column * self.column_stride..).unwrap_or(&[]);
        Self { data, rows: rows.min(self.rows - row), columns: columns.min(self.columns - column), ..self }
    }

    /// Prefetches rows whose elements are adjacent.
    pub(super) fn prefetch_rows(self, rows: Range<usize>) {
        for row in rows.start..rows.end.min(if self.column_stride == 1 { self.rows } else { 0 }) {
            prefetch(&self.data[row * self.row_stride..][..self.columns], 0);
        }
    }

    /// True for a column-major matrix with gaps between columns.
    pub(super) fn is_spread(self) -> bool {
        self.row_stride == 1 && self.column_stride > self.rows && self.rows > 0
    }

    /// Copies the columns without gaps, if there are any. With gaps, cache lines at the same offset of many pages evict each
    /// other.
    pub(super) fn gathered<'e>(self, columns: &'e mut Vec<f32>) -> Result<Matrix<'e>, CpuError>
    where
        'a: 'e,
    {
        if !self.is_spread() {
            return Ok(self);
        }
        let copy = room(columns, self.rows * self.columns)?;
        for (to, from) in copy.chunks_exact_mut(self.rows).zip(self.data.chunks(self.column_stride)) {
            prefetch(from.get(..self.rows).unwrap_or(&[]), AHEAD * self.column_stride);
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
        }
        Ok(Matrix { data: copy, column_stride: self.rows, ..self })
    }

    /// The row-major elements, zero-padded to `rows` by `columns`.
    fn padded(self, rows: usize, columns: usize) -> Result<Vec<f32>, CpuError> {
        let mut copy: Vec<f32> = zeros(rows * columns)?;
        for (row, line) in copy.chunks_exact_mut(columns.max(1)).take(self.rows).enumerate() {
            for (column, element) in line.iter_mut().take(self.columns).enumerate() {
                *element = self.data[row * self.row_stride + column * self.column_stride];
            }
        }
        Ok(copy)
    }
}

/// `out = a b`, or `out += a b` if `accumulate`. Rows of `out` are `stride` apart.
///
/// A row of the result depends only on the same row of `a`, and on `b`.
pub(super) fn multiply(
    out: &mut [f32],
    stride: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    accumulate: bool,
) -> Result<(), CpuError> {
    let (m, n, k) = (a.rows, b.columns, a.columns.min(b.rows));
    if m == 0 || n == 0 {
        return Ok(());
    }
    let fits = stride >= n && out.len() >= (m - 1) * stride + n;
    debug_assert!(fits, "{} floats for {m} rows of {n}, {stride} apart", out.len());
    if !fits {
        return Err(CpuError::Content { dtype: DType::F32, shape: vec![m, n] });
    }
    if k == 0 {
        if !accumulate {
            out.chunks_mut(stride).take(m).for_each(|row| row[..n].fill(0.0));
        }
    } else if m == 1 {
        let (rows, mut sums): (_, Vec<f32>) = (a.padded(2, k)?, zeros(2 * n)?);
        sums[..n].copy_from_slice(&out[..n]);
        if let Some(a) = Matrix::new(&rows, (2, k), (k, 1)) {
            multiply(&mut sums, n, a, b, accumulate)?;
        }
        out[..n].copy_from_slice(&sums[..n]);
    } else if n == 1 || (b.row_stride == 1 && m * n <= SMALL) {
        let width = n.max(2);
        let (columns, mut sums): (_, Vec<f32>) = (b.padded(k, width)?, zeros(m * width)?);
        for (sums, out) in sums.chunks_exact_mut(width).zip(out.chunks(stride)) {
            sums[..n].copy_from_slice(&out[..n]);
        }
        if let Some(b) = Matrix::new(&columns, (k, width), (width, 1)) {
            multiply_blocks(&mut sums, width, a, b, accumulate)?;
        }
        for (sums, out) in sums.chunks_exact(width).zip(out.chunks_mut(stride)) {
            out[..n].copy_from_slice(&sums[..n]);
        }
    } else {
        multiply_blocks(out, stride, a, b, accumulate)?;
    }
    Ok(())
}

/// Start and number of terms of each block of a sum. The last block has at least [`LEAST`] terms, if the sum has as
/// many.
pub(super) fn blocks_of_sum(terms: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = terms.checked_sub(start).filter(|&rest| rest > 0)?;
        let count = if rest > DEPTH && rest < DEPTH + LEAST { rest - LEAST } else { rest.min(DEPTH) };
        start += count;
        Some((start - count, count))
    })
}

fn multiply_blocks(
    out: &mut [f32],
    stride: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    accumulate: bool,
) -> Result<(), CpuError> {
    slab()?;
    for (start, k) in blocks_of_sum(a.columns.min(b.rows)) {
        let (a, b) = (a.part((0, start), (a.rows, k)), b.part((start, 0), (k, b.columns)));
        let accumulate = accumulate || start > 0;
        if k >= LEAST {
            multiply_block(out, stride, a, b, accumulate);
            continue;
        }
        let (left, right) = (a.padded(a.rows, LEAST)?, b.padded(LEAST, b.columns)?);
        let a = Matrix::new(&left, (a.rows, LEAST), (LEAST, 1));
        if let (Some(a), Some(b)) = (a, Matrix::new(&right, (LEAST, b.columns), (b.columns, 1))) {
            multiply_block(out, stride, a, b, accumulate);
        }
    }
    Ok(())
}

/// A matmul with a depth from [`LEAST`] to [`DEPTH`].
fn multiply_block(out: &mut [f32], stride: usize, a: Matrix<'_>, b: Matrix<'_>, accumulate: bool) {
    debug_assert!(a.columns == b.rows && (LEAST..=DEPTH).contains(&a.columns), "a depth of {}", a.columns);
    // The library prefers contiguous columns of the result, so it computes the transposed product. SAFETY: `Matrix`
    // keeps all elements of `a` and `b` within their slices, `multiply` ensures that `out` holds `a.rows` rows of
    // `b.columns` elements `stride` apart, and `out` is borrowed exclusively. All three are initialised. The kernel was
    // selected for the instructions of this processor.
    unsafe {
        Arch::chosen().gemm()(
            b.columns,
            a.rows,
            a.columns,
            out.as_mut_ptr(),
            stride as isize,
            1,
            accumulate,
            b.data.as_ptr(),
            b.row_stride as isize,
            b.column_stride as isize,
            a.data.as_ptr(),
            a.row_stride as isize,
            a.column_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(in crate::kernels::product) fn noise(n: usize, seed: u32) -> Vec<f32> {
        (0..n as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    #[test]
    fn a_row_does_not_depend_on_the_other_rows() {
        for (n, k) in [(1, 7), (1, 600), (2, 1), (3, 2), (8, 64), (16, 512), (25, 513), (50, 50), (64, 1030), (300, 33)]
        {
            let (a, b) = (noise(200 * k, 1), noise(k * n, 2));
            for (strides, name) in [((n, 1), "rows"), ((1, k), "columns")] {
                let b = Matrix::new(&b, (k, n), strides).unwrap();
                let mut whole = vec![0.0; 200 * n];
                multiply(&mut whole, n, Matrix::new(&a, (200, k), (k, 1)).unwrap(), b, false).unwrap();
                for m in [1, 2, 3, 5, 8, 9, 16, 31, 48, 64, 65, 100, 129] {
                    let mut part = vec![0.0; m * n];
                    multiply(&mut part, n, Matrix::new(&a[7 * k..], (m, k), (k, 1)).unwrap(), b, false).unwrap();
                    assert_eq!(part, whole[7 * n..][..m * n], "m {m} n {n} k {k} by {name}");
                }
            }
        }
    }

    #[test]
    fn panels_give_the_same_bits() {
        for (m, n, k) in [(1, 64, 20), (49, 65, 600), (100, 25, 3), (97, 300, 512)] {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            let a = Matrix::new(&a, (m, k), (k, 1)).unwrap();
            for strides in [(n, 1), (1, k)] {
                let b = Matrix::new(&b, (k, n), strides).unwrap();
                let mut whole = vec![0.0; m * n];
                multiply(&mut whole, n, a, b, false).unwrap();
                let stride = n.next_multiple_of(64);
                let mut out = vec![f32::NAN; m * stride];
                let panels = PackedRhs::new(b).unwrap();
                panels.multiply(&mut out, stride, a, (0, n, 0), false).unwrap();
                for (out, whole) in out.chunks(stride).zip(whole.chunks(n)) {
                    assert_eq!(&out[..n], whole);
                }
                // A column range that begins in the middle of a panel.
                let (first, end) = (16.min(n), n - n % 3);
                panels.multiply(&mut out, stride, a, (first, end, 0), false).unwrap();
                for (out, whole) in out.chunks(stride).zip(whole.chunks(n)) {
                    assert_eq!(&out[..end.saturating_sub(first)], &whole[first..end.max(first)]);
                }
            }
        }
    }

    #[test]
    fn terms_of_zero_change_no_bit() {
        for (m, n, k) in [1, 2, 3, 24, 50].into_iter().flat_map(|m| {
            [1, 2, 8, 25, 64, 100].into_iter().flat_map(move |n| [1, 2, 3, 7, 16].map(move |k| (m, n, k)))
        }) {
            let (long, sums) = (k + 14, noise(m * n, 3));
            let (few, all) = (noise(m * k, 1), noise(long * n, 2));
            let mut many = vec![0.0; m * long];
            many.chunks_mut(long).zip(few.chunks(k)).for_each(|(many, few)| many[..k].copy_from_slice(few));
            let few = Matrix::new(&few, (m, k), (k, 1)).unwrap();
            let many = Matrix::new(&many, (m, long), (long, 1)).unwrap();
            for (strides, name) in [((n, 1), "rows"), ((1, long), "columns")] {
                let b = Matrix::new(&all, (long, n), strides).unwrap();
                for accumulate in [false, true] {
                    let case = format!("m {m} n {n} k {k} by {name}, {accumulate}");
                    let product = |a, b| {
                        let mut out = sums.clone();
                        multiply(&mut out, n, a, b, accumulate).unwrap();
                        out
                    };
                    let whole = product(many, b);
                    assert_eq!(product(few, b.part((0, 0), (k, n))), whole, "{case}");
                    let stride = n.next_multiple_of(64);
                    let mut out = vec![0.0; m * stride];
                    out.chunks_mut(stride).zip(sums.chunks(n)).for_each(|(out, sums)| out[..n].copy_from_slice(sums));
                    PackedRhs::new(b).unwrap().multiply(&mut out, stride, few, (0, n, 0), accumulate).unwrap();
                    for (out, whole) in out.chunks(stride).zip(whole.chunks(n)) {
                        assert_eq!(&out[..n], whole, "{case}, panels");
                    }
                }
            }
        }
    }

    #[test]
    fn products_meet_sums_in_doubles() {
        let (m, n, k) = (37, 29, 700);
        let (a, b) = (noise(m * k, 3), noise(k * n, 4));
        let mut out = vec![1.0; m * (n + 3)];
        let (left, right) = (Matrix::new(&a, (m, k), (k, 1)).unwrap(), Matrix::new(&b, (k, n), (n, 1)).unwrap());
        multiply(&mut out, n + 3, left, right, true).unwrap();
        for i in 0..m {
            for j in 0..n {
                let sum: f64 = (0..k).map(|x| f64::from(a[i * k + x]) * f64::from(b[x * n + j])).sum();
                assert!((f64::from(out[i * (n + 3) + j]) - 1.0 - sum).abs() < 1e-4);
            }
            if i + 1 < m {
                assert_eq!(out[i * (n + 3) + n..(i + 1) * (n + 3)], [1.0; 3]);
            }
        }
    }
}
