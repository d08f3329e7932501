//! Random numbers.

use super::arch::{Arch, widening_mul};
use super::lanes::{Grid, LANES, Lanes, Row};
use super::philox;
use pulp::{Simd, WithSimd};

/// Uniform floats for arbitrary elements.
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

/// Uniform floats for adjacent elements, from index `first` of each row on. A generator block yields four floats.
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

/// Counter vectors per iteration.
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

/// The floats of blocks from `counter` on. `out` has the size of [`SIDE`] vectors of blocks.
#[inline(always)]
fn draw<S: Simd>(simd: S, seed: i64, counter: u32, out: &mut [f32]) {
    let lanes = S::F32_LANES;
    let order = match lanes {
        16 => const { order(16) },
        8 => const { order(8) },
        _ => const { order(4) },
    };
    let Some(&order) = S::as_simd_u32s(&order).0.first() else { return };
    let mut counters = [order; SIDE];
    for (n, counters) in counters.iter_mut().enumerate() {
        *counters = simd.add_u32s(*counters, simd.splat_u32s(counter.wrapping_add((n * lanes) as u32)));
    }
    for (words, out) in blocks(simd, seed, counters).into_iter().zip(out.chunks_exact_mut(4 * lanes)) {
        let words = if lanes < 4 { words } else { transposed(simd, words) };
        for (out, &word) in out.iter_mut().zip(bytemuck::cast_slice::<S::u32s, u32>(&words)) {
            *out = philox::unit(word);
        }
    }
}

/// The block number of each lane, for which [`transposed`] yields words in order.
const fn order(lanes: usize) -> [u32; 16] {
    let mut order = [0; 16];
    let mut lane = 0;
    while lane < lanes {
        order[lane] = (lanes / 4 * (lane % 4) + lane / 4) as u32;
        lane += 1;
    }
    order
}

/// Transposes each 4x4 square of four adjacent lanes in four vectors.
#[inline(always)]
fn transposed<S: Simd>(simd: S, [a, b, c, d]: [S::u32s; 4]) -> [S::u32s; 4] {
    const LANE: [u32; 16] = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];
    let Some(&lane) = S::as_simd_u32s(&LANE).0.first() else { return [a, b, c, d] };
    let is_odd = simd.greater_than_or_equal_u32s(simd.and_u32s(lane, simd.splat_u32s(1)), simd.splat_u32s(1));
    let is_high = simd.greater_than_or_equal_u32s(lane, simd.splat_u32s(2));
    let [(a, b), (c, d)] = [(a, b), (c, d)].map(|(a, b)| exchanged(simd, is_odd, 1, a, b));
    let [(a, c), (b, d)] = [(a, c), (b, d)].map(|(a, b)| exchanged(simd, is_high, 2, a, b));
    [a, b, c, d]
}

/// Swaps each lane of `a` in the mask with the lane of `b` that is `by` lanes before.
#[inline(always)]
fn exchanged<S: Simd>(simd: S, mask: S::m32s, by: usize, a: S::u32s, b: S::u32s) -> (S::u32s, S::u32s) {
    let first = simd.select_u32s(mask, simd.rotate_right_u32s(b, by), a);
    let second = simd.select_u32s(mask, b, simd.rotate_left_u32s(a, by));
    (first, second)
}

/// Philox4x32-10 for vectors of counters: see [`philox::uniform_block`].
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
