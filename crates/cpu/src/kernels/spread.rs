//! Spreads operands of narrow rows over all points, so that passes process many rows as one.

use super::chain::Block;
use super::lanes::{Lanes, Row};
use pulp::Simd;

/// Number of floats of a block of narrow rows. All operands of a block stay in the first cache.
pub(super) const SPREAD: usize = 512;

/// Largest number of operands that are spread.
pub(super) const OPERANDS: usize = 16;

/// Rows of at most so many points are narrow: a pass takes longer to begin such a row than to compute it.
const NARROW: usize = 32;

/// True if operands of rows of `points` points are to be spread.
pub(super) fn is_narrow(points: usize) -> bool {
    (1..=NARROW).contains(&points)
}

/// Binds operands to a block of whole rows, with one value for all points or one for each point. `room` has [`SPREAD`]
/// floats per operand.
#[inline(always)]
pub(super) fn spread<'a, S: Simd>(
    simd: S,
    operands: &[Lanes<'a, f32>],
    block: Block,
    room: &'a mut [f32],
    bound: &mut [Lanes<'a, f32>],
) {
    let size = block.rows * block.points;
    for ((&operand, bound), room) in operands.iter().zip(bound).zip(room.chunks_exact_mut(SPREAD)) {
        *bound = match operand {
            Lanes::Same(_) => operand,
            Lanes::Each(values) => {
                let start = block.row * block.points;
                Lanes::Each(values.get(start..start + size).unwrap_or(&[]))
            }
            Lanes::Rows(_) | Lanes::Strided(..) | Lanes::Scattered(..) => {
                let room = &mut room[..size];
                for (n, out) in room.chunks_exact_mut(block.points).enumerate() {
                    fill(simd, out, block.row(operand, n));
                }
                Lanes::Each(room)
            }
        };
    }
}

#[inline(always)]
fn fill<S: Simd>(simd: S, out: &mut [f32], row: Row<'_, f32>) {
    let (vectors, rest) = S::as_mut_simd_f32s(out);
    match row {
        Row::Same(value) => {
            vectors.fill(simd.splat_f32s(value));
            rest.fill(value);
        }
        Row::Each(values) => {
            let (values, last) = S::as_simd_f32s(values);
            vectors.iter_mut().zip(values).for_each(|(out, &value)| *out = value);
            rest.iter_mut().zip(last).for_each(|(out, &value)| *out = value);
        }
    }
}
