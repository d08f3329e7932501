//! Online softmax: rows of scores arrive in spans.

use super::arch::Arch;
use super::masks::{KeyTile, MaskMachine};
use super::vectors::exp;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The running maximum of a row's scores, and the sum of weights relative to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    largest: f32,
    sum: f32,
    /// True if the row has a visible key.
    counts: bool,
}

impl Softmax {
    pub(super) const NO_KEYS: Self = Self { largest: f32::MIN, sum: 0.0, counts: false };
}

/// Number of partial sums per row. It fixes the order of addition, independently of the processor and of other rows.
const LANES: usize = 16;

/// A block of scores for the keys of a span. Rows are `stride` apart.
pub(super) struct Scores<'a> {
    pub values: &'a mut [f32],
    pub stride: usize,
    /// The positions of the span's keys in each row.
    pub keys: Range<usize>,
    pub masks: &'a MaskMachine<'a>,
    pub span: &'a [KeyTile],
}

/// Rows of weighted sums, `stride` apart.
pub(super) struct Sums<'a> {
    pub values: &'a mut [f32],
    pub stride: usize,
}

/// Replaces scores by weights relative to the running maximum of their row, and rescales the weighted sums so far.
pub(super) fn weigh(rows: &mut [Softmax], scores: Scores<'_>, sums: Sums<'_>) {
    Arch::chosen().dispatch(Weigh { rows, scores, sums });
}

/// Divides weighted sums by the sum of weights, in rows with a visible key.
pub(super) fn finish(rows: &[Softmax], sums: Sums<'_>) {
    Arch::chosen().dispatch(|| {
        for (row, line) in rows.iter().zip(sums.values.chunks_exact_mut(sums.stride)).filter(|(row, _)| row.counts) {
            line.iter_mut().for_each(|sum| *sum /= row.sum);
        }
    });
}

struct Weigh<'a> {
    rows: &'a mut [Softmax],
    scores: Scores<'a>,
    sums: Sums<'a>,
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.rows::<S, 1>(simd),
            8 => self.rows::<S, 2>(simd),
            4 => self.rows::<S, 4>(simd),
            _ => self.rows::<S, LANES>(simd),
        }
    }
}

impl Weigh<'_> {
    #[inline(always)]
    fn rows<S: Simd, const N: usize>(self, simd: S) {
        let Scores { values, stride, keys, masks, span } = self.scores;
        let lines = values.chunks_mut(stride).zip(self.sums.values.chunks_exact_mut(self.sums.stride));
        for (n, (row, (line, sums))) in self.rows.iter_mut().zip(lines).enumerate() {
            let Some(line) = line.get_mut(keys.clone()) else { continue };
            let largest = largest::<S, N>(simd, line, row.largest);
            if largest == f32::MIN {
                weigh_lowest(row, line, masks.kept(span, n));
                continue;
            }
            let earlier = *row;
            *row = Softmax { largest, sum: weights::<S, N>(simd, line, largest), counts: true };
            // Without earlier weights, all sums are zero.
            if earlier.sum != 0.0 {
                let factor = exp(simd, simd.splat_f32s(earlier.largest - largest));
                let factor = bytemuck::cast_slice::<S::f32s, f32>(&[factor])[0];
                sums.iter_mut().for_each(|sum| *sum *= factor);
                row.sum += earlier.sum * factor;
            }
        }
    }
}

/// The maximum of a row's scores and `before`. NaN is ignored.
#[inline(always)]
fn largest<S: Simd, const N: usize>(simd: S, line: &[f32], before: f32) -> f32 {
    let mut most = [simd.splat_f32s(before); N];
    let (blocks, rest) = line.as_chunks();
    for block in blocks.iter().chain((!rest.is_empty()).then(|| padded(rest)).as_ref()) {
        for (most, &x) in most.iter_mut().zip(S::as_simd_f32s(block).0) {
            *most = simd.select_f32s(simd.less_than_f32s(*most, x), x, *most);
        }
    }
    folded::<S, N>(most, |a, b| if b > a { b } else { a })
}

/// Replaces a row of scores by weights, and returns their sum.
#[inline(always)]
fn weights<S: Simd, const N: usize>(simd: S, line: &mut [f32], largest: f32) -> f32 {
    let mut totals = [simd.splat_f32s(0.0); N];
    let (blocks, rest) = line.as_chunks_mut();
    let mut last = (!rest.is_empty()).then(|| padded(rest));
    for block in blocks.iter_mut().chain(last.as_mut()) {
        for (total, x) in totals.iter_mut().zip(S::as_mut_simd_f32s(block).0) {
            *x = weight(simd, *x, largest);
            *total = simd.add_f32s(*total, *x);
        }
    }
    rest.iter_mut().zip(last.iter().flatten()).for_each(|(x, &weight)| *x = weight);
    folded::<S, N>(totals, |a, b| a + b)
}

/// The remaining scores of a row, padded with the score of hidden keys.
#[inline(always)]
fn padded(rest: &[f32]) -> [f32; LANES] {
    let mut block = [f32::MIN; LANES];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// Reduces all lanes to one value.
#[inline(always)]
fn folded<S: Simd, const N: usize>(vectors: [S::f32s; N], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    lanes.copy_from_slice(bytemuck::cast_slice(&vectors));
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Computes weights if no score is above `f32::MIN`, which is also the score of hidden keys.
fn weigh_lowest(row: &mut Softmax, line: &mut [f32], kept: impl Iterator<Item = bool>) {
    for (x, kept) in line.iter_mut().zip(kept) {
        *x = match *x {
            _ if !kept => 0.0,
            x if x.is_nan() => x,
            x => f32::from(u8::from(x == f32::MIN)),
        };
        row.sum += *x;
        row.counts |= kept;
    }
}

/// The weight of scores relative to the maximum.
#[inline(always)]
fn weight<S: Simd>(simd: S, score: S::f32s, largest: f32) -> S::f32s {
    let masked = simd.equal_f32s(score, simd.splat_f32s(f32::MIN));
    let weight = exp(simd, simd.sub_f32s(score, simd.splat_f32s(largest)));
    simd.select_f32s(masked, simd.splat_f32s(0.0), weight)
}
