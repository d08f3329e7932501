//! Exact int8 matmuls, with the processor's dot product instructions.

use super::arch::Arch;
use super::error::CpuError;
use super::kept::Footprint;
use super::scratch::{room, zeros};
use super::tasks;
use crate::parallel::threads;
use pulp::{Simd, WithSimd};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Rows per microkernel tile; they share loads of columns.
const ROWS: usize = 4;

/// Column vectors per microkernel tile; they share loads of a row.
const VECTORS: usize = 2;

/// Maximum number of rows per task.
const BLOCK: usize = 32;

/// A microkernel for int8 products. A 32-bit word has adjacent elements of a row or a column.
trait Way: Copy + Debug + Send + Sync + 'static {
    /// Elements per word.
    const PACKED: usize;
    /// Columns per vector.
    const LANES: usize;
    /// The offset added to the left operand's bytes before multiplication.
    const EXCESS: i32;

    /// Packs at most [`Way::PACKED`] bytes of the left operand into a word.
    fn left(bytes: &[i8]) -> i32;
    /// Packs at most [`Way::PACKED`] bytes of the right operand into a word.
    fn right(bytes: &[u8]) -> i32;
    /// Adds the products of the rows `left` and a tile of columns to `sums`. `right` has `VECTORS` vectors of columns for
    /// each word of a row.
    fn add(left: [&[i32]; ROWS], right: &[i32], sums: &mut [i32]);
}

/// Columns of a tile.
const fn width<W: Way>() -> usize {
    VECTORS * W::LANES
}

/// Packs two 16-bit elements into a word.
fn pair(elements: [i16; 2]) -> i32 {
    i32::from(elements[0] as u16) | i32::from(elements[1]) << 16
}

/// The microkernel for any processor.
#[derive(Clone, Copy, Debug)]
struct Plain;

impl Way for Plain {
    const PACKED: usize = 2;
    const LANES: usize = 8;
    const EXCESS: i32 = 0;

    fn left(bytes: &[i8]) -> i32 {
        pair(std::array::from_fn(|n| bytes.get(n).map_or(0, |&byte| i16::from(byte))))
    }

    fn right(bytes: &[u8]) -> i32 {
        pair(std::array::from_fn(|n| bytes.get(n).map_or(0, |&byte| i16::from(byte as i8))))
    }

    fn add(left: [&[i32]; ROWS], right: &[i32], sums: &mut [i32]) {
        let columns = width::<Self>();
        for (row, sums) in left.iter().zip(sums.chunks_exact_mut(columns)) {
            for (&a, right) in row.iter().zip(right.chunks_exact(columns)) {
                for (sum, &b) in sums.iter_mut().zip(right) {
                    let low = i32::from(a as i16) * i32::from(b as i16);
                    *sum = sum.wrapping_add(low).wrapping_add((a >> 16) * (b >> 16));
                }
            }
        }
    }
}

/// Multiplies pairs of 16-bit integers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Way for Avx2 {
    const PACKED: usize = 2;
    const LANES: usize = 8;
    const EXCESS: i32 = 0;

    fn left(bytes: &[i8]) -> i32 {
        Plain::left(bytes)
    }

    fn right(bytes: &[u8]) -> i32 {
        Plain::right(bytes)
    }

    fn add(left: [&[i32]; ROWS], right: &[i32], sums: &mut [i32]) {
        // SAFETY: this type is used only where the processor has the instructions.
        unsafe { avx2(left, right, sums) }
    }
}

/// Multiplies four bytes at once; the left ones are unsigned.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
struct Vnni;

#[cfg(target_arch = "x86_64")]
impl Way for Vnni {
    const PACKED: usize = 4;
    const LANES: usize = 16;
    const EXCESS: i32 = 128;

    fn left(bytes: &[i8]) -> i32 {
        i32::from_le_bytes(std::array::from_fn(|n| bytes.get(n).map_or(0, |&byte| (byte as u8) ^ 0x80)))
    }

    fn right(bytes: &[u8]) -> i32 {
        i32::from_le_bytes(std::array::from_fn(|n| bytes.get(n).copied().unwrap_or(0)))
    }

    fn add(left: [&[i32]; ROWS], right: &[i32], sums: &mut [i32]) {
        // SAFETY: this type is used only where the processor has the instructions.
        unsafe { vnni(left, right, sums) }
    }
}

/// Defines [`Way::add`] for a vector type. `$add` adds the products of two vectors to accumulators.
#[cfg(target_arch = "x86_64")]
macro_rules! tile {
    ($name:ident, $features:literal, $lanes:literal, $zero:ident, $load:ident, $splat:ident, $store:ident, |$sum:ident, $a:ident, $b:ident| $add:expr) => {
        #[target_feature(enable = $features)]
        fn $name(left: [&[i32]; ROWS], right: &[i32], out: &mut [i32]) {
            let (vectors, rest) = right.as_chunks::<$lanes>();
            debug_assert!(rest.is_empty());
            let steps = left[0].len().min(left[1].len()).min(left[2].len()).min(left[3].len());
            let mut sums = [[$zero(); VECTORS]; ROWS];
            for (k, vectors) in vectors.as_chunks::<VECTORS>().0.iter().enumerate().take(steps) {
                let mut right = [$zero(); VECTORS];
                for (to, from) in right.iter_mut().zip(vectors) {
                    // SAFETY: the chunk has the size of the vector.
                    *to = unsafe { $load(from.as_ptr().cast()) };
                }
                for (sums, row) in sums.iter_mut().zip(&left) {
                    let $a = $splat(row[k]);
                    for (sum, &$b) in sums.iter_mut().zip(&right) {
                        let $sum = *sum;
                        *sum = $add;
                    }
                }
            }
            let out = out.as_chunks_mut::<$lanes>().0.iter_mut();
            for (to, sum) in out.zip(sums.as_flattened()) {
                // SAFETY: the chunk has the size of the vector.
                unsafe { $store(to.as_mut_ptr().cast(), *sum) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
tile!(
    avx2,
    "avx2",
    8,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_set1_epi32,
    _mm256_storeu_si256,
    |sum, a, b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
);

#[cfg(target_arch = "x86_64")]
tile!(
    vnni,
    "avx2,avx512f,avx512bw,avx512vnni",
    16,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_set1_epi32,
    _mm512_storeu_si512,
    |sum, a, b| _mm512_dpbusd_epi32(sum, a, b)
);

/// A left operand, row-major.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left<'a> {
    /// Signed bytes.
    Bytes(&'a [i32]),
    /// Floats to quantize to unsigned bytes; see [`rewire_graph::op::QuantizedProduct`].
    Floats { elements: &'a [f32], scale: f32, zero: f32 },
}

/// The offset between unsigned and signed bytes.
const HALF: f32 = 128.0;

impl Left<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(elements) => elements.len(),
            Self::Floats { elements, .. } => elements.len(),
        }
    }

    /// The elements of a range, as signed bytes.
    fn signed(&self, first: usize, bytes: &mut [i8]) {
        let range = first..first + bytes.len();
        match *self {
            Self::Bytes(elements) => bytes.iter_mut().zip(&elements[range]).for_each(|(to, &from)| *to = from as i8),
            Self::Floats { elements, scale, zero } => {
                Arch::chosen().dispatch_exact(Round { elements: &elements[range], scale, zero, bytes })
            }
        }
    }

    /// The zero point of the left operand's signed bytes, for which products are corrected.
    fn excess(&self) -> i32 {
        match *self {
            Self::Bytes(_) => 0,
            Self::Floats { zero, .. } => (zero - HALF) as i32,
        }
    }
}

/// Quantizes floats to bytes.
struct Round<'a> {
    elements: &'a [f32],
    scale: f32,
    zero: f32,
    bytes: &'a mut [i8],
}

impl WithSimd for Round<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::manual_clamp, reason = "NaN becomes the lowest byte; `clamp` keeps it")]
    fn with_simd<S: Simd>(self, _: S) {
        // The lowest bits of a float of this magnitude are an integer.
        const WHOLE: f32 = 12_582_912.0;
        let Self { elements, scale, zero, bytes } = self;
        for (to, &x) in bytes.iter_mut().zip(elements) {
            // Values beyond these limits give the same bytes.
            let quotient = (x / scale).max(-512.0).min(512.0);
            let byte = (quotient + WHOLE - WHOLE + zero).max(0.0).min(255.0) - HALF;
            *to = (byte + WHOLE).to_bits() as i8;
        }
    }
}

/// A right operand, packed for a microkernel.
pub(super) trait Factor: Footprint + Debug + Send + Sync {
    /// Stores the product of `left` and this operand in `out`, whose row stride is `pitch` elements.
    fn multiply(&self, left: Left<'_>, out: &mut [i32], pitch: usize) -> Result<(), CpuError>;
}

type Prepare = fn(&[i32], usize, usize) -> Result<Arc<dyn Factor>, CpuError>;

/// The microkernels that this processor supports, fastest first.
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

/// Packs a right operand: `columns` rows of `depth` bytes, four per word. See [`rewire_graph::op::IntegerProduct`].
pub(super) fn factor(words: &[i32], depth: usize, columns: usize) -> Result<Arc<dyn Factor>, CpuError> {
    WAYS.first().map_or(prepared::<Plain> as Prepare, |&way| way)(words, depth, columns)
}

/// Tiles of columns. A tile stores word 0 of all its columns, then word 1, and so on.
#[derive(Debug)]
struct Columns<W: Way> {
    words: Vec<i32>,
    /// The sum of each column's bytes.
    sums: Vec<i32>,
    depth: usize,
    way: PhantomData<W>,
}

fn prepared<W: Way>(words: &[i32], depth: usize, columns: usize) -> Result<Arc<dyn Factor>, CpuError> {
    let (own, given) = (depth.div_ceil(W::PACKED), depth.div_ceil(4));
    let tile = own * width::<W>();
    let (mut tiles, mut sums) = (zeros(columns.div_ceil(width::<W>()) * tile)?, zeros(columns)?);
    let blocks = tiles.chunks_mut(tile.max(1)).zip(sums.chunks_mut(width::<W>()));
    let blocks = blocks.zip(words.chunks((given * width::<W>()).max(1)));
    tasks::for_each(
        blocks.collect(),
        || Ok(vec![]),
        |bytes: &mut Vec<u8>, ((tile, sums), words)| {
            let bytes = room(bytes, given * 4)?;
            for (n, (column, sum)) in words.chunks(given).zip(sums).enumerate() {
                bytes.as_chunks_mut().0.iter_mut().zip(column).for_each(|(to, word)| *to = word.to_le_bytes());
                *sum = bytes.iter().map(|&byte| i32::from(byte as i8)).sum();
                let to = tile.iter_mut().skip(n).step_by(width::<W>());
                to.zip(bytes.chunks(W::PACKED)).for_each(|(to, bytes)| *to = W::right(bytes));
            }
            Ok(())
        },
    )?;
    Ok(Arc::new(Columns::<W> { words: tiles, sums, depth, way: PhantomData }))
}

impl<W: Way> Footprint for Columns<W> {
    fn bytes(&self) -> u64 {
        (size_of_val(&*self.words) + size_of_val(&*self.sums)) as u64
    }
}

impl<W: Way> Factor for Columns<W> {
    fn multiply(&self, left: Left<'_>, out: &mut [i32], pitch: usize) -> Result<(), CpuError> {
        if left.len() == 0 || self.sums.is_empty() {
            out.fill(0);
            return Ok(());
        }
        let excess = W::EXCESS + left.excess();
        let rows = left.len() / self.depth;
        let share = rows.div_ceil(2 * threads()).next_multiple_of(ROWS).min(BLOCK);
        if rows > share {
            return tasks::for_each(
                out.chunks_mut(share * pitch).enumerate().take(rows.div_ceil(share)).collect(),
                || Ok(Scratch::default()),
                |scratch, (n, out)| {
                    let rows = n * share..rows.min((n + 1) * share);
                    let (left, sums) = scratch.of::<W>(left, rows, self.depth)?;
                    for tile in 0..self.tiles() {
                        self.sums(left, tile, sums, excess, |row, n, values| {
                            out[row * pitch + n..][..values.len()].copy_from_slice(values)
                        });
                    }
                    Ok(())
                },
            );
        }
        // With few rows, tasks are tiles of columns.
        let mut scratch = Scratch::default();
        let (left, _) = scratch.of::<W>(left, 0..rows, self.depth)?;
        let mut all: Vec<i32> = zeros(self.tiles() * width::<W>() * rows)?;
        let tiles = all.chunks_mut(width::<W>() * rows).enumerate();
        tasks::for_each(
            tiles.collect(),
            || zeros(ROWS * width::<W>()),
            |sums, (tile, all)| {
                self.sums(left, tile, sums, excess, |row, _, values| {
                    all[row * width::<W>()..][..values.len()].copy_from_slice(values)
                });
                Ok(())
            },
        )?;
        for (row, out) in out.chunks_mut(pitch).enumerate().take(rows) {
            let parts = all.chunks(width::<W>() * rows).map(|tile| &tile[row * width::<W>()..][..width::<W>()]);
            out.iter_mut().zip(parts.flatten()).for_each(|(to, &from)| *to = from);
        }
        Ok(())
    }
}

/// Scratch memory of a thread.
#[derive(Default)]
struct Scratch {
    bytes: Vec<i8>,
    left: Vec<i32>,
    sums: Vec<i32>,
}

impl Scratch {
    /// Rows packed to words, and memory for the accumulators of a tile.
    fn of<W: Way>(
        &mut self,
        left: Left<'_>,
        rows: Range<usize>,
        depth: usize,
    ) -> Result<(&[i32], &mut [i32]), CpuError> {
        let words = depth.div_ceil(W::PACKED);
        let (bytes, own) = (room(&mut self.bytes, depth)?, room(&mut self.left, rows.len() * words)?);
        for (to, row) in own.chunks_mut(words).zip(rows) {
            left.signed(row * depth, bytes);
            to.iter_mut().zip(bytes.chunks(W::PACKED)).for_each(|(to, from)| *to = W::left(from));
        }
        Ok((own, room(&mut self.sums, ROWS * width::<W>())?))
    }
}

impl<W: Way> Columns<W> {
    fn tiles(&self) -> usize {
        self.sums.len().div_ceil(width::<W>())
    }

    /// Multiplies all rows by a tile of columns. Calls `store` with row, first column and results.
    fn sums(
        &self,
        left: &[i32],
        tile: usize,
        sums: &mut [i32],
        excess: i32,
        mut store: impl FnMut(usize, usize, &[i32]),
    ) {
        let words = self.depth.div_ceil(W::PACKED);
        let (size, first) = (words * width::<W>(), tile * width::<W>());
        let (right, of_columns) = (&self.words[tile * size..][..size], &self.sums[first..]);
        let rows = left.len() / words;
        for start in (0..rows).step_by(ROWS) {
            let lines = std::array::from_fn(|n| &left[(start + n).min(rows - 1) * words..][..words]);
            sums.fill(0);
            W::add(lines, right, sums);
            for (sums, row) in sums.chunks_mut(width::<W>()).zip(start..rows) {
                let count = of_columns.len().min(sums.len());
                let corrected = sums.iter_mut().zip(of_columns);
                corrected.for_each(|(sum, of_column)| *sum = sum.wrapping_sub(of_column.wrapping_mul(excess)));
                store(row, first, &sums[..count]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Left, WAYS};
    use rewire_graph::op::IntegerProduct;

    /// Random bytes; many are -128.
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
                prepare(&words, depth, columns).unwrap().multiply(Left::Bytes(&own), &mut out, pitch).unwrap();
                let rows: Vec<i32> = out.chunks(pitch).flat_map(|row| row[..columns].to_vec()).collect();
                assert_eq!(rows, expected, "{depth} x {columns}");
            }
        }
    }
}
