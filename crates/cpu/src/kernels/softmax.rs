//! The softmax of rows of scores that arrive in spans.

use super::arch::Arch;
use super::masks::{KeyTile, MaskMachine};
use super::vectors::exp;
use pulp::{Simd, WithSimd};

/// The running maximum of a row's scores, and the sum of weights relative to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    largest: f32,
    sum: f32,
    /// True if a key was included.
    counts: bool,
}

impl Softmax {
    pub(super) const NO_KEYS: Self = Self { largest: f32::MIN, sum: 0.0, counts: false };

    /// Replaces a row of scores by weights relative to the running maximum, and rescales `sums`, to which they will be
    /// added.
    pub(super) fn weigh(&mut self, line: &mut [f32], sums: &mut [f32], kept: Kept<'_>) {
        Arch::chosen().dispatch(Rescale { state: self, line, sums, kept });
    }

    /// Divides weighted sums by the sum of weights, if a key was included.
    pub(super) fn finish(&self, sums: &mut [f32]) {
        if self.counts {
            sums.iter_mut().for_each(|sum| *sum /= self.sum);
        }
    }
}

/// The keys of a span that are included for a row.
pub(super) struct Kept<'a> {
    pub masks: &'a MaskMachine<'a>,
    pub span: &'a [KeyTile],
    pub row: usize,
}

struct Rescale<'a> {
    state: &'a mut Softmax,
    line: &'a mut [f32],
    sums: &'a mut [f32],
    kept: Kept<'a>,
}

impl Rescale<'_> {
    /// Weights if no score is above the lowest float, which is also the score of excluded keys.
    fn weigh_lowest(self) {
        for (x, kept) in self.line.iter_mut().zip(self.kept.masks.kept(self.kept.span, self.kept.row)) {
            *x = match *x {
                _ if !kept => 0.0,
                x if x.is_nan() => x,
                x => f32::from(u8::from(x == f32::MIN)),
            };
            self.state.sum += *x;
            self.state.counts |= kept;
        }
    }
}

impl WithSimd for Rescale<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        const PARTIALS: usize = 16;
        let mut partials = [f32::MIN; PARTIALS];
        for part in self.line.chunks(PARTIALS) {
            partials.iter_mut().zip(part).for_each(|(p, &x)| *p = if x > *p { x } else { *p });
        }
        let largest = partials.iter().fold(self.state.largest, |a, &b| if b > a { b } else { a });
        if largest == f32::MIN {
            return self.weigh_lowest();
        }
        let factor = exp(simd, simd.splat_f32s(self.state.largest - largest));
        let factor = bytemuck::cast_slice::<S::f32s, f32>(&[factor])[0];
        self.sums.iter_mut().for_each(|sum| *sum *= factor);
        let (vectors, rest) = S::as_mut_simd_f32s(self.line);
        for x in vectors {
            *x = weight(simd, *x, largest);
        }
        if !rest.is_empty() {
            let x = simd.partial_load_f32s(rest);
            simd.partial_store_f32s(rest, weight(simd, x, largest));
        }
        let mut partials = [0.0; PARTIALS];
        for part in self.line.chunks(PARTIALS) {
            partials.iter_mut().zip(part).for_each(|(p, &x)| *p += x);
        }
        let sum = self.state.sum * factor + partials.iter().sum::<f32>();
        *self.state = Softmax { largest, sum, counts: true };
    }
}

/// The weight of a score relative to the largest one.
#[inline(always)]
fn weight<S: Simd>(simd: S, score: S::f32s, largest: f32) -> S::f32s {
    let masked = simd.equal_f32s(score, simd.splat_f32s(f32::MIN));
    let weight = exp(simd, simd.sub_f32s(score, simd.splat_f32s(largest)));
    simd.select_f32s(masked, simd.splat_f32s(0.0), weight)
}
