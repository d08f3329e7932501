//! Exact products of matrices of bytes, by the instructions for sums of short products that the processor has.

use super::error::CpuError;
use super::kept::Footprint;
use super::scratch::{room, zeros};
use super::tasks;
use crate::parallel::threads;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

/// What depths are filled up to a multiple of.
const STEP: usize = 64;

/// Rows that share what is read of a column.
const ROWS: usize = 4;

/// Columns that share what is read of a row.
const GROUP: usize = 4;

/// Rows of a task, at most.
const BLOCK: usize = 32;

/// How sums of products of bytes are computed.
trait Way: Copy + Debug + 'static {
    /// A byte of either factor.
    type Element: Copy + Debug + Default + Send + Sync;
    /// What a sum has too much for each of the column's elements.
    const EXCESS: i32;

    fn left(byte: i32) -> Self::Element;
    fn right(byte: u8) -> Self::Element;
    /// Sums of rows by columns; all slices have one length, a multiple of [`STEP`].
    fn sums(left: [&[Self::Element]; ROWS], right: [&[Self::Element]; GROUP]) -> [[i32; GROUP]; ROWS];
}

/// By a loop that any processor runs.
#[derive(Clone, Copy, Debug)]
struct Plain;

impl Way for Plain {
    type Element = i16;
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
#[derive(Clone, Copy, Debug)]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Way for Avx2 {
    type Element = i16;
    const EXCESS: i32 = 0;

    fn left(byte: i32) -> i16 {
        Plain::left(byte)
    }

    fn right(byte: u8) -> i16 {
        Plain::right(byte)
    }

    fn sums(left: [&[i16]; ROWS], right: [&[i16]; GROUP]) -> [[i32; GROUP]; ROWS] {
        // SAFETY: this type is used only where the processor has the instructions.
        unsafe { avx2(left, right) }
    }
}

/// By products of four bytes, unsigned ones on the left.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
struct Vnni;

#[cfg(target_arch = "x86_64")]
impl Way for Vnni {
    type Element = u8;
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

/// A function with the sums of a tile, by vectors of so many elements: `$add` adds products of two vectors to sums, `$half` adds up lanes of
/// sums until eight are left.
#[cfg(target_arch = "x86_64")]
macro_rules! tile {
    ($name:ident, $features:literal, $element:ty, $lanes:literal, $zero:ident, $load:ident, $add:expr, $half:expr) => {
        #[target_feature(enable = $features)]
        fn $name(left: [&[$element]; ROWS], right: [&[$element]; GROUP]) -> [[i32; GROUP]; ROWS] {
            let (left, right) = (left.map(|x| x.as_chunks::<$lanes>().0), right.map(|x| x.as_chunks::<$lanes>().0));
            let mut sums = [[$zero(); GROUP]; ROWS];
            let steps = left.iter().chain(&right).map(|x| x.len()).min().unwrap_or(0);
            for k in 0..steps {
                let mut b = [$zero(); GROUP];
                for (b, x) in b.iter_mut().zip(&right) {
                    // SAFETY: the chunk has as many bytes.
                    *b = unsafe { $load(x[k].as_ptr().cast()) };
                }
                for (sums, x) in sums.iter_mut().zip(&left) {
                    // SAFETY: the chunk has as many bytes.
                    let a = unsafe { $load(x[k].as_ptr().cast()) };
                    for (sum, &b) in sums.iter_mut().zip(&b) {
                        *sum = $add(*sum, a, b);
                    }
                }
            }
            let mut out = [[0; GROUP]; ROWS];
            for (out, sums) in out.iter_mut().zip(sums) {
                let mut halves = [_mm256_setzero_si256(); GROUP];
                for (half, sum) in halves.iter_mut().zip(sums) {
                    *half = $half(sum);
                }
                *out = totals(halves);
            }
            out
        }
    };
}

#[cfg(target_arch = "x86_64")]
tile!(
    avx2,
    "avx2",
    i16,
    16,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    |sum, a, b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)),
    |sum| sum
);

#[cfg(target_arch = "x86_64")]
tile!(
    vnni,
    "avx2,avx512f,avx512bw,avx512vnni",
    u8,
    64,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    |sum, a, b| _mm512_dpbusd_epi32(sum, a, b),
    |sum| _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum))
);

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

/// A right factor as the loops read it.
pub(super) trait Factor: Footprint + Debug + Send + Sync {
    /// Stores the product of `left`, a row after the other, by this factor. Rows of the result begin `pitch` elements after another.
    fn multiply(&self, left: &[i32], out: &mut [i32], pitch: usize) -> Result<(), CpuError>;
}

type Prepare = fn(&[i32], usize, usize) -> Result<Arc<dyn Factor>, CpuError>;

/// The ways that this processor has, the fastest first.
static WAYS: LazyLock<Vec<Prepare>> = LazyLock::new(|| {
    let mut ways: Vec<Prepare> = vec![];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vnni") {
            ways.push(prepared::<Vnni>);
        }
        if is_x86_feature_detected!("avx2") {
            ways.push(prepared::<Avx2>);
        }
    }
    ways.push(prepared::<Plain>);
    ways
});

/// The right factor of a product: `columns` rows of `depth` bytes, four a word. See [`rewire_graph::op::IntegerProduct`].
pub(super) fn factor(words: &[i32], depth: usize, columns: usize) -> Result<Arc<dyn Factor>, CpuError> {
    WAYS.first().map_or(prepared::<Plain> as Prepare, |&way| way)(words, depth, columns)
}

/// Columns filled up to whole steps, a whole number of groups.
#[derive(Debug)]
struct Columns<W: Way> {
    elements: Vec<W::Element>,
    /// What each sum has too much.
    excess: Vec<i32>,
    depth: usize,
}

fn prepared<W: Way>(words: &[i32], depth: usize, columns: usize) -> Result<Arc<dyn Factor>, CpuError> {
    let (filled, count) = (depth.next_multiple_of(STEP), columns.next_multiple_of(GROUP));
    let (mut elements, mut excess): (Vec<W::Element>, Vec<i32>) = (zeros(count * filled)?, zeros(columns)?);
    let own = elements.chunks_mut(filled.max(1)).zip(words.chunks(depth.div_ceil(4).max(1))).zip(&mut excess);
    tasks::for_each(
        own.collect(),
        || Ok(()),
        |(), ((to, from), excess)| {
            to.as_chunks_mut().0.iter_mut().zip(from).for_each(|(to, word)| *to = word.to_le_bytes().map(W::right));
            let bytes = from.iter().flat_map(|word| word.to_le_bytes().map(|byte| i32::from(byte as i8)));
            *excess = bytes.sum::<i32>().wrapping_mul(W::EXCESS);
            Ok(())
        },
    )?;
    Ok(Arc::new(Columns::<W> { elements, excess, depth }))
}

impl<W: Way> Footprint for Columns<W> {
    fn bytes(&self) -> u64 {
        (size_of_val(&*self.elements) + size_of_val(&*self.excess)) as u64
    }
}

impl<W: Way> Factor for Columns<W> {
    fn multiply(&self, left: &[i32], out: &mut [i32], pitch: usize) -> Result<(), CpuError> {
        if self.depth == 0 || self.excess.is_empty() {
            out.fill(0);
            return Ok(());
        }
        let rows = left.len() / self.depth;
        let share = rows.div_ceil(2 * threads()).next_multiple_of(ROWS).min(BLOCK);
        if rows > share {
            let blocks = out.chunks_mut(share * pitch).zip(left.chunks(share * self.depth));
            return tasks::for_each(
                blocks.collect(),
                || Ok(vec![]),
                |scratch, (out, left)| {
                    let left = self.filled(left, scratch)?;
                    self.groups().for_each(|group| self.sums(left, group, |row, n, sum| out[row * pitch + n] = sum));
                    Ok(())
                },
            );
        }
        // By columns, where there are few rows.
        let mut scratch = vec![];
        let left = self.filled(left, &mut scratch)?;
        let mut sums: Vec<i32> = zeros(self.excess.len().next_multiple_of(GROUP) * rows)?;
        let groups = sums.chunks_mut(GROUP * rows).zip(self.groups());
        tasks::for_each(
            groups.collect(),
            || Ok(()),
            |(), (sums, group)| {
                self.sums(left, group, |row, n, sum| sums[(n - group) * rows + row] = sum);
                Ok(())
            },
        )?;
        for (row, out) in out.chunks_mut(pitch).enumerate().take(rows) {
            out.iter_mut().zip(sums.iter().skip(row).step_by(rows)).for_each(|(to, &from)| *to = from);
        }
        Ok(())
    }
}

impl<W: Way> Columns<W> {
    /// The first columns of groups.
    fn groups(&self) -> impl Iterator<Item = usize> {
        (0..self.excess.len()).step_by(GROUP)
    }

    /// Rows filled up to whole steps.
    fn filled<'s>(&self, left: &[i32], scratch: &'s mut Vec<W::Element>) -> Result<&'s [W::Element], CpuError> {
        let filled = self.depth.next_multiple_of(STEP);
        let own = room(scratch, left.len() / self.depth * filled)?;
        for (to, from) in own.chunks_mut(filled).zip(left.chunks(self.depth)) {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = W::left(from));
        }
        Ok(own)
    }

    /// Stores the sums of all rows by a group of columns: row, column, sum.
    fn sums(&self, left: &[W::Element], group: usize, mut store: impl FnMut(usize, usize, i32)) {
        let filled = self.depth.next_multiple_of(STEP);
        let columns = std::array::from_fn(|n| &self.elements[(group + n) * filled..][..filled]);
        let (rows, excess) = (left.len() / filled, &self.excess[group..]);
        for start in (0..rows).step_by(ROWS) {
            let lines = std::array::from_fn(|n| &left[(start + n).min(rows - 1) * filled..][..filled]);
            let tile = W::sums(lines, columns);
            for (line, row) in tile.iter().zip(start..rows) {
                for ((sum, excess), n) in line.iter().zip(excess).zip(group..) {
                    store(row, n, sum.wrapping_sub(*excess));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WAYS;
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
        for (rows, depth, columns) in
            [(1, 1, 1), (3, 5, 9), (7, 64, 8), (5, 131, 21), (2, 300, 3), (70, 3, 6), (0, 4, 4)]
        {
            let (left, right) = (bytes(rows * depth, 7), bytes(columns * depth, 11));
            let words = IntegerProduct::words(&right, depth);
            let own: Vec<i32> = left.iter().map(|&x| i32::from(x)).collect();
            let dot = |(a, b): (&[i8], &[i8])| a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
            let pairs = left.chunks(depth).flat_map(|a| right.chunks(depth).map(move |b| (a, b)));
            let expected: Vec<i32> = pairs.map(dot).collect();
            let pitch = columns.next_multiple_of(4);
            for prepare in WAYS.iter() {
                let mut out = vec![0; rows * pitch];
                prepare(&words, depth, columns).unwrap().multiply(&own, &mut out, pitch).unwrap();
                let rows: Vec<i32> = out.chunks(pitch).flat_map(|row| row[..columns].to_vec()).collect();
                assert_eq!(rows, expected, "{depth} x {columns}");
            }
        }
    }
}
