//! Exact products of matrices of bytes, by the instructions for sums of short products that the processor has.

use super::error::CpuError;
use super::scratch::{room, zeros};
use super::tasks;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::sync::LazyLock;

/// Columns of a task.
const COLUMNS: usize = 8;

/// What depths are filled up to a multiple of.
const STEP: usize = 64;

/// Rows that share what is read of a column.
const ROWS: usize = 4;

/// Columns that share what is read of a row.
const GROUP: usize = 4;

/// The extents of a product.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub rows: usize,
    pub depth: usize,
    pub columns: usize,
}

/// Elements of both factors that are multiplied and summed by one loop.
trait Factors: Copy {
    type Left: Copy + Default + Send + Sync;
    type Right: Copy + Default + Send + Sync;

    /// A byte of the left factor.
    fn left(byte: i32) -> Self::Left;
    /// A byte of the right factor.
    fn right(byte: u8) -> Self::Right;
    /// What a sum has too much for each of the column's elements.
    const EXCESS: i32;
    /// Sums of rows by columns; all slices have one length, a multiple of [`STEP`].
    fn sums(left: [&[Self::Left]; ROWS], right: [&[Self::Right]; GROUP]) -> [[i32; GROUP]; ROWS];
}

/// By a loop that any processor runs.
#[derive(Clone, Copy)]
struct Plain;

impl Factors for Plain {
    type Left = i16;
    type Right = i16;
    const EXCESS: i32 = 0;

    fn left(byte: i32) -> i16 {
        byte as i16
    }

    fn right(byte: u8) -> i16 {
        i16::from(byte as i8)
    }

    fn sums(left: [&[i16]; ROWS], right: [&[i16]; GROUP]) -> [[i32; GROUP]; ROWS] {
        left.map(|left| {
            right.map(|right| {
                let products = left.iter().zip(right).map(|(&a, &b)| i32::from(a) * i32::from(b));
                products.fold(0, i32::wrapping_add)
            })
        })
    }
}

/// By products of pairs of 16 bits.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Factors for Avx2 {
    type Left = i16;
    type Right = i16;
    const EXCESS: i32 = 0;

    fn left(byte: i32) -> i16 {
        byte as i16
    }

    fn right(byte: u8) -> i16 {
        i16::from(byte as i8)
    }

    fn sums(left: [&[i16]; ROWS], right: [&[i16]; GROUP]) -> [[i32; GROUP]; ROWS] {
        // SAFETY: this type is used only where the processor has the instructions.
        unsafe { avx2(left, right) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(left: [&[i16]; ROWS], right: [&[i16]; GROUP]) -> [[i32; GROUP]; ROWS] {
    let (left, right) = (left.map(|x| x.as_chunks::<16>().0), right.map(|x| x.as_chunks::<16>().0));
    let mut sums = [[_mm256_setzero_si256(); GROUP]; ROWS];
    let steps = left.iter().chain(&right).map(|x| x.len()).min().unwrap_or(0);
    for k in 0..steps {
        let mut b = [_mm256_setzero_si256(); GROUP];
        for (b, x) in b.iter_mut().zip(&right) {
            // SAFETY: the chunk has as many bytes.
            *b = unsafe { _mm256_loadu_si256(x[k].as_ptr().cast()) };
        }
        for (sums, x) in sums.iter_mut().zip(&left) {
            // SAFETY: the chunk has as many bytes.
            let a = unsafe { _mm256_loadu_si256(x[k].as_ptr().cast()) };
            for (sum, &b) in sums.iter_mut().zip(&b) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(a, b));
            }
        }
    }
    let mut out = [[0; GROUP]; ROWS];
    for (out, &sums) in out.iter_mut().zip(&sums) {
        *out = totals(sums);
    }
    out
}

/// The sums of the lanes of each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn totals([a, b, c, d]: [__m256i; GROUP]) -> [i32; GROUP] {
    let both = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let sums = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
    let mut out = [0; GROUP];
    // SAFETY: the array has as many bytes.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), sums) };
    out
}

/// By products of four bytes, unsigned ones on the left.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Vnni;

#[cfg(target_arch = "x86_64")]
impl Factors for Vnni {
    type Left = u8;
    type Right = u8;
    const EXCESS: i32 = 128;

    fn left(byte: i32) -> u8 {
        (byte as u8) ^ 0x80
    }

    fn right(byte: u8) -> u8 {
        byte
    }

    fn sums(left: [&[u8]; ROWS], right: [&[u8]; GROUP]) -> [[i32; GROUP]; ROWS] {
        // SAFETY: this type is used only where the processor has the instructions.
        unsafe { vnni(left, right) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vnni")]
fn vnni(left: [&[u8]; ROWS], right: [&[u8]; GROUP]) -> [[i32; GROUP]; ROWS] {
    let (left, right) = (left.map(|x| x.as_chunks::<64>().0), right.map(|x| x.as_chunks::<64>().0));
    let mut sums = [[_mm512_setzero_si512(); GROUP]; ROWS];
    let steps = left.iter().chain(&right).map(|x| x.len()).min().unwrap_or(0);
    for k in 0..steps {
        let mut b = [_mm512_setzero_si512(); GROUP];
        for (b, x) in b.iter_mut().zip(&right) {
            // SAFETY: the chunk has as many bytes.
            *b = unsafe { _mm512_loadu_si512(x[k].as_ptr().cast()) };
        }
        for (sums, x) in sums.iter_mut().zip(&left) {
            // SAFETY: the chunk has as many bytes.
            let a = unsafe { _mm512_loadu_si512(x[k].as_ptr().cast()) };
            for (sum, &b) in sums.iter_mut().zip(&b) {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
    }
    let mut out = [[0; GROUP]; ROWS];
    for (out, &sums) in out.iter_mut().zip(&sums) {
        let mut folded = [_mm256_setzero_si256(); GROUP];
        for (to, &sum) in folded.iter_mut().zip(&sums) {
            *to = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
        }
        *out = totals(folded);
    }
    out
}

type Run = fn(&[i32], &[i32], Extents, &mut [i32]) -> Result<(), CpuError>;

/// The ways that this processor has, the fastest first.
static WAYS: LazyLock<Vec<Run>> = LazyLock::new(|| {
    let mut ways: Vec<Run> = vec![];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vnni") {
            ways.push(run::<Vnni>);
        }
        if is_x86_feature_detected!("avx2") {
            ways.push(run::<Avx2>);
        }
    }
    ways.push(run::<Plain>);
    ways
});

/// The product of `left`, a row after the other, by the rows of `right`, four bytes a word: see
/// [`rewire_graph::op::IntegerProduct`].
pub(super) fn product(left: &[i32], right: &[i32], extents: Extents, out: &mut [i32]) -> Result<(), CpuError> {
    WAYS.first().map_or(Ok(()), |run| run(left, right, extents, out))
}

fn run<F: Factors>(left: &[i32], right: &[i32], extents: Extents, out: &mut [i32]) -> Result<(), CpuError> {
    let Extents { rows, depth, columns } = extents;
    if rows == 0 || columns == 0 || depth == 0 {
        return Ok(());
    }
    let (filled, words) = (depth.next_multiple_of(STEP), depth.div_ceil(4));
    let mut own: Vec<F::Left> = zeros(rows * filled)?;
    for (to, from) in own.chunks_mut(filled).zip(left.chunks(depth)) {
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = F::left(from));
    }
    // By columns, so that every task has elements of its own.
    let mut sums: Vec<i32> = zeros(rows * columns)?;
    let blocks: Vec<(&mut [i32], &[i32])> =
        sums.chunks_mut(rows * COLUMNS).zip(right.chunks(words * COLUMNS)).collect();
    tasks::for_each(
        blocks,
        || zeros(COLUMNS * filled),
        |scratch: &mut Vec<F::Right>, (sums, right)| {
            let columns = room(scratch, COLUMNS * filled)?;
            block::<F>(&own, (right, words), (columns, filled), sums);
            Ok(())
        },
    )?;
    for (row, out) in out.chunks_mut(columns).enumerate() {
        out.iter_mut().zip(sums.iter().skip(row).step_by(rows)).for_each(|(to, &from)| *to = from);
    }
    Ok(())
}

/// The columns of a task.
fn block<F: Factors>(
    left: &[F::Left],
    (right, words): (&[i32], usize),
    (columns, filled): (&mut [F::Right], usize),
    sums: &mut [i32],
) {
    let mut excess = [0i32; COLUMNS];
    for ((to, from), excess) in columns.chunks_mut(filled).zip(right.chunks(words)).zip(&mut excess) {
        let whole = to.as_chunks_mut::<4>().0.iter_mut();
        whole.zip(from).for_each(|(to, word)| *to = word.to_le_bytes().map(F::right));
        if F::EXCESS != 0 {
            let sums = from.iter().map(|word| word.to_le_bytes().map(|byte| i32::from(byte as i8)));
            *excess = sums.map(|[a, b, c, d]| a + b + c + d).sum::<i32>().wrapping_mul(F::EXCESS);
        }
    }
    let rows = left.len() / filled;
    let (mut pieces, last) = (columns.chunks(filled), rows - 1);
    for (sums, excess) in sums.chunks_mut(rows * GROUP).zip(excess.chunks(GROUP)) {
        let group: [&[F::Right]; GROUP] = std::array::from_fn(|_| pieces.next().unwrap_or(&[]));
        for start in (0..rows).step_by(ROWS) {
            let lines = std::array::from_fn(|n| {
                let row = (start + n).min(last);
                &left[row * filled..][..filled]
            });
            let tile = F::sums(lines, group);
            for (line, n) in tile.iter().zip(start..rows) {
                let own = sums.iter_mut().skip(n).step_by(rows);
                own.zip(line.iter().zip(excess)).for_each(|(to, (sum, excess))| *to = sum.wrapping_sub(*excess));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Extents, WAYS};
    use rewire_graph::op::IntegerProduct;

    /// Bytes with the extremes among them.
    fn bytes(count: usize, seed: u32) -> Vec<i8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state.is_multiple_of(5) { -128 } else { (state >> 24) as i8 }
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn every_way_is_exact() {
        for (rows, depth, columns) in [(1, 1, 1), (3, 5, 9), (7, 64, 8), (5, 131, 21), (2, 300, 3), (0, 4, 4)] {
            let (left, right) = (bytes(rows * depth, 7), bytes(columns * depth, 11));
            let words = IntegerProduct::words(&right, depth);
            let own: Vec<i32> = left.iter().map(|&x| i32::from(x)).collect();
            let dot = |(a, b): (&[i8], &[i8])| a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
            let pairs = left.chunks(depth).flat_map(|a| right.chunks(depth).map(move |b| (a, b)));
            let expected: Vec<i32> = pairs.map(dot).collect();
            for run in WAYS.iter() {
                let mut out = vec![0; rows * columns];
                run(&own, &words, Extents { rows, depth, columns }, &mut out).unwrap();
                assert_eq!(out, expected, "{rows} x {depth} x {columns}");
            }
        }
    }
}
