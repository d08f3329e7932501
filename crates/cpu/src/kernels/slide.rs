//! Sums of products along ranges of one buffer that begin at different places.

use super::arch::{Arch, mul_add};
use super::error::CpuError;
use super::product::{PackedRhs, blocks_of_sum};
use super::scratch::room;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows of the register tile.
const TILE: usize = 4;
/// Vectors per row of the register tile.
const VECTORS: usize = 3;
/// Floats by which the buffer is longer than the last range, and to a multiple of which ranges are extended: at least
/// [`VECTORS`] of the widest vectors.
pub(super) const SLACK: usize = 64;

/// For each of the columns `rows` of `weights`, `i`, and each `x < points` the sum of `weights[k, i] * data[taps[k] + x]`.
/// Calls `store` with the number of the column among these and its sums. `scratch` is memory for sums. The first column is
/// a multiple of [`TILE`].
pub(super) fn multiply(
    scratch: &mut Vec<f32>,
    (weights, rows): (&PackedRhs, Range<usize>),
    (data, taps): (&[f32], &[usize]),
    points: usize,
    mut store: impl FnMut(usize, &[f32]),
) -> Result<(), CpuError> {
    let pitch = points.next_multiple_of(SLACK);
    debug_assert!(taps.iter().all(|tap| tap + pitch <= data.len()), "a range ends beyond {} floats", data.len());
    let sums = room(scratch, TILE * pitch)?;
    for first in rows.clone().step_by(TILE) {
        let (weights, width) = weights.strip(first);
        for (start, count) in blocks_of_sum(taps.len()) {
            let (taps, weights) = (&taps[start..start + count], weights.get(start * width..).unwrap_or(&[]));
            debug_assert!(weights.len() >= (count - 1) * width + TILE, "{} weights of {count} taps", weights.len());
            Arch::chosen().dispatch(Slide { data, taps, weights, width, sums, pitch, points, accumulate: start > 0 });
        }
        for (row, sums) in (first..rows.end).zip(sums.chunks_exact(pitch)) {
            store(row - rows.start, &sums[..points]);
        }
    }
    Ok(())
}

struct Slide<'a> {
    data: &'a [f32],
    taps: &'a [usize],
    /// The factors of each tap, `width` apart.
    weights: &'a [f32],
    width: usize,
    sums: &'a mut [f32],
    pitch: usize,
    points: usize,
    accumulate: bool,
}

impl WithSimd for Slide<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let mut first = 0;
        while first < self.points {
            let vectors = (self.points - first).div_ceil(S::F32_LANES).min(VECTORS);
            match vectors {
                1 => self.tile::<S, 1>(simd, first),
                2 => self.tile::<S, 2>(simd, first),
                _ => self.tile::<S, VECTORS>(simd, first),
            }
            first += vectors * S::F32_LANES;
        }
    }
}

impl Slide<'_> {
    /// Computes `V` vectors of each row from point `first` on.
    #[inline(always)]
    fn tile<S: Simd, const V: usize>(&mut self, simd: S, first: usize) {
        let mut sums = [[simd.splat_f32s(0.0); V]; TILE];
        for (&tap, weights) in self.taps.iter().zip(self.weights.chunks(self.width)) {
            let Some(weights) = weights.first_chunk::<TILE>() else { return };
            let Some(range) = self.data.get(tap + first..tap + first + V * S::F32_LANES) else { return };
            let Some(range) = S::as_simd_f32s(range).0.first_chunk::<V>() else { return };
            for (sums, &weight) in sums.iter_mut().zip(weights) {
                let weight = simd.splat_f32s(weight);
                for (sum, &value) in sums.iter_mut().zip(range) {
                    *sum = mul_add(simd, weight, value, *sum);
                }
            }
        }
        for (out, sums) in self.sums.chunks_exact_mut(self.pitch).zip(sums) {
            let Some(out) = out.get_mut(first..first + V * S::F32_LANES) else { return };
            for (out, sum) in S::as_mut_simd_f32s(out).0.iter_mut().zip(sums) {
                *out = if self.accumulate { simd.add_f32s(*out, sum) } else { sum };
            }
        }
    }
}
