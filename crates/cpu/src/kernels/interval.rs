//! Bounds of operands, for interval analysis of expressions.

use super::operand::{Env, View};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Interval, ReadBounds};

/// Maximum number of elements examined to bound a load. Loads of more elements are unbounded.
const SCAN: usize = 256;

impl ReadBounds for Env<'_> {
    fn size(&self, position: u16) -> Interval {
        self.sizes.get(usize::from(position)).map_or(Interval::UNKNOWN, |&size| Interval::point(size.into()))
    }

    fn load(&self, operand: u16, scalar: Scalar, index: &[Interval]) -> Interval {
        self.views.get(usize::from(operand)).map_or(Interval::UNKNOWN, |view| load(view, scalar, index))
    }
}

/// Bounds of the elements at the indices.
fn load(view: &View<'_>, scalar: Scalar, index: &[Interval]) -> Interval {
    let mut offset = 0;
    let (mut count, mut step) = (1, 0);
    for ((bounds, &extent), &stride) in index.iter().zip(view.shape.iter()).zip(view.strides.iter()) {
        if !(bounds.low >= 0.0 && bounds.high < extent as f64) {
            return Interval::UNKNOWN;
        }
        let (low, high) = (bounds.low as usize, bounds.high as usize);
        offset += low * stride;
        if high > low {
            if count > 1 || high - low >= SCAN {
                return Interval::UNKNOWN;
            }
            (count, step) = (high - low + 1, stride);
        }
    }
    let mut found: Option<Interval> = None;
    for n in 0..count {
        match view.elements.number(offset + n * step) {
            Some(value) if value.is_finite() => {
                let value = Interval::point(value);
                found = Some(found.map_or(value, |found| found.join(value)));
            }
            _ => return Interval::UNKNOWN,
        }
    }
    found
        .filter(|found| scalar == Scalar::F32 || found.low.abs().max(found.high.abs()) < Interval::EXACT)
        .unwrap_or(Interval::UNKNOWN)
}
