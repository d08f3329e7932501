//! Random numbers.

use super::arch::{Arch, widening_mul};
use super::lanes::{Grid, LANES, Lanes, Row};
use super::philox;
use pulp::{Simd, WithSimd};

/// Uniform floats of any elements.
pub(super) fn uniform((out, grid): (&mut [f32], Grid), seeds: Lanes<'_, i64>, index: Lanes<'_, i32>) {
    for (row, out) in out.chunks_exact_mut(grid.points).take(grid.rows).enumerate() {
        for (point, out) in out.iter_mut().enumerate() {
            let (seed, index) = (seeds.at(row, point, grid.points), index.at(row, point, grid.points));
            if let (Some(seed), Some(index)) = (seed, index) {
                *out = philox::uniform(seed, index as u32);
            }
        }
    }
}

/// Uniform floats of neighbouring elements from `first` on, by row. Four come from one block of the generator.
pub(super) fn uniform_runs(arch: Arch, (out, grid): (&mut [f32], Grid), seeds: Lanes<'_, i64>, first: &[i32]) {
    for ((row, out), &first) in out.chunks_exact_mut(grid.points).enumerate().zip(first) {
        let first = first as u32;
        match seeds.row(row, grid.points) {
            Row::Same(seed) if first.checked_add(LANES as u32).is_some() => {
                arch.dispatch(Draw { seed, first, out });
            }
            _ => {
                for (point, out) in out.iter_mut().enumerate() {
                    if let Some(seed) = seeds.at(row, point, grid.points) {
                        *out = philox::uniform(seed, first.wrapping_add(point as u32));
                    }
                }
            }
        }
    }
}

struct Draw<'a> {
    seed: i64,
    first: u32,
    out: &'a mut [f32],
}

/// Vectors of counters whose blocks are computed side by side.
const SIDE: usize = 2;

impl WithSimd for Draw<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let size = 4 * SIDE * S::F32_LANES;
        let skip = self.first as usize % 4;
        let mut counter = self.first / 4;
        let mut out = self.out;
        if skip > 0 {
            let mut words = [0.0; 4 * SIDE * 16];
            draw(simd, self.seed, counter, &mut words[..size]);
            let count = (size - skip).min(out.len());
            let (head, rest) = out.split_at_mut(count);
            head.copy_from_slice(&words[skip..skip + count]);
            (out, counter) = (rest, counter.wrapping_add(SIDE as u32 * S::F32_LANES as u32));
        }
        let mut groups = out.chunks_exact_mut(size);
        for group in &mut groups {
            draw(simd, self.seed, counter, group);
            counter = counter.wrapping_add(SIDE as u32 * S::F32_LANES as u32);
        }
        let rest = groups.into_remainder();
        if !rest.is_empty() {
            let mut words = [0.0; 4 * SIDE * 16];
            draw(simd, self.seed, counter, &mut words[..size]);
            rest.copy_from_slice(&words[..rest.len()]);
        }
    }
}

/// The floats of the blocks from `counter` on; `out` has room for those of [`SIDE`] vectors of blocks.
#[inline(always)]
fn draw<S: Simd>(simd: S, seed: i64, counter: u32, out: &mut [f32]) {
    let mut counters = [0u32; SIDE * 16];
    for (n, value) in counters.iter_mut().enumerate() {
        *value = counter.wrapping_add(n as u32);
    }
    let (vectors, _) = S::as_simd_u32s(&counters);
    let Some(vectors) = vectors.first_chunk::<SIDE>() else { return };
    let words = blocks(simd, seed, *vectors);
    for (words, out) in words.iter().zip(out.chunks_exact_mut(4 * S::F32_LANES)) {
        let [a, b, c, d] = words.map(|words| {
            let mut floats = [0.0; 16];
            for (float, &word) in floats.iter_mut().zip(bytemuck::cast_slice::<S::u32s, u32>(&[words])) {
                *float = philox::unit(word);
            }
            floats
        });
        for (lane, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *out = [a[lane], b[lane], c[lane], d[lane]];
        }
    }
}

/// Philox4x32-10 of vectors of counters: see [`philox::uniform_block`].
#[inline(always)]
fn blocks<S: Simd>(simd: S, seed: i64, counters: [S::u32s; SIDE]) -> [[S::u32s; 4]; SIDE] {
    let zero = simd.splat_u32s(0);
    let mut blocks = counters.map(|counter| [counter, zero, zero, zero]);
    let [first, second] = philox::FACTORS.map(|factor| simd.splat_u32s(factor));
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..philox::ROUNDS {
        let [low, high] = key.map(|key| simd.splat_u32s(key));
        for c in &mut blocks {
            let (a_low, a_high) = widening_mul(simd, c[0], first);
            let (b_low, b_high) = widening_mul(simd, c[2], second);
            *c = [
                simd.xor_u32s(simd.xor_u32s(b_high, c[1]), low),
                b_low,
                simd.xor_u32s(simd.xor_u32s(a_high, c[3]), high),
                a_low,
            ];
        }
        key = philox::next_key(key);
    }
    blocks
}
