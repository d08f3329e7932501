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

/// A block of scores for the keys of a span. Rows are `stride` apart, a multiple of [`LANES`].
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
            let mut line = Line { blocks: line.as_chunks_mut().0, keys: keys.clone() };
            let largest = line.largest::<S, N>(simd, row.largest);
            if largest == f32::MIN {
                weigh_lowest(row, line.blocks.as_flattened_mut().get_mut(keys.clone()), masks.kept(span, n));
                continue;
            }
            let earlier = *row;
            *row = Softmax { largest, sum: line.weights::<S, N>(simd, largest), counts: true };
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

/// A row of scores, of which those at `keys` count.
struct Line<'a> {
    blocks: &'a mut [[f32; LANES]],
    keys: Range<usize>,
}

impl Line<'_> {
    /// The maximum of the scores and `before`. NaN is ignored.
    #[inline(always)]
    fn largest<S: Simd, const N: usize>(&self, simd: S, before: f32) -> f32 {
        let mut most = [simd.splat_f32s(before); N];
        for (n, block) in self.blocks.iter().enumerate() {
            let scores = self.block::<S, N>(simd, block, n);
            for (most, x) in most.iter_mut().zip(scores) {
                *most = simd.select_f32s(simd.less_than_f32s(*most, x), x, *most);
            }
        }
        folded::<S, N>(most, |a, b| if b > a { b } else { a })
    }

    /// Replaces scores by weights, which are zero outside of the keys, and returns their sum.
    #[inline(always)]
    fn weights<S: Simd, const N: usize>(&mut self, simd: S, largest: f32) -> f32 {
        let mut totals = [simd.splat_f32s(0.0); N];
        for n in 0..self.blocks.len() {
            let scores = self.block::<S, N>(simd, &self.blocks[n], n);
            let weights = scores.map(
                #[inline(always)]
                |x| weight(simd, x, largest),
            );
            for (total, &weight) in totals.iter_mut().zip(&weights) {
                *total = simd.add_f32s(*total, weight);
            }
            S::as_mut_simd_f32s(&mut self.blocks[n]).0.copy_from_slice(&weights);
        }
        folded::<S, N>(totals, |a, b| a + b)
    }

    /// The scores of block `n`, with those of hidden keys outside of the row's keys.
    #[inline(always)]
    fn block<S: Simd, const N: usize>(&self, simd: S, block: &[f32; LANES], n: usize) -> [S::f32s; N] {
        let mut scores = [simd.splat_f32s(f32::MIN); N];
        scores.copy_from_slice(S::as_simd_f32s(block).0);
        let (start, end) = (n * LANES, (n + 1) * LANES);
        if self.keys.start <= start && end <= self.keys.end {
            return scores;
        }
        let places = S::as_simd_f32s(&PLACES).0;
        let [low, high] = [self.keys.start, self.keys.end].map(|end| simd.splat_f32s(end as f32 - start as f32));
        for (x, &place) in scores.iter_mut().zip(places) {
            let inside = simd.select_f32s(simd.less_than_f32s(place, high), *x, simd.splat_f32s(f32::MIN));
            *x = simd.select_f32s(simd.less_than_f32s(place, low), simd.splat_f32s(f32::MIN), inside);
        }
        scores
    }
}

/// The places in a block.
const PLACES: [f32; LANES] = {
    let mut places = [0.0; LANES];
    let mut n = 0;
    while n < LANES {
        places[n] = n as f32;
        n += 1;
    }
    places
};

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
fn weigh_lowest(row: &mut Softmax, line: Option<&mut [f32]>, kept: impl Iterator<Item = bool>) {
    for (x, kept) in line.into_iter().flatten().zip(kept) {
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
