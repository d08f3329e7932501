//! Conversions between slices of 16-bit and 32-bit floats of equal lengths.

use super::arch::Arch;
use bytemuck::{cast_slice, cast_slice_mut};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// f16 as f32.
pub(super) fn widen(from: &[u16], to: &mut [f32]) {
    let arch = Arch::chosen();
    if arch.converts_f16() {
        cast_slice::<u16, f16>(from).convert_to_f32_slice(to);
    } else {
        arch.dispatch(|| to.iter_mut().zip(from).for_each(|(to, &half)| *to = widened(half)));
    }
}

/// The nearest f16 values to floats, ties to even.
pub(super) fn narrow(from: &[f32], to: &mut [u16]) {
    let arch = Arch::chosen();
    if arch.converts_f16() {
        cast_slice_mut::<u16, f16>(to).convert_from_f32_slice(from);
    } else {
        arch.dispatch(|| to.iter_mut().zip(from).for_each(|(to, &value)| *to = narrowed(value)));
    }
}

/// Bits of the smallest normal f16, as f32.
const NORMAL: u32 = 0x3880_0000;
/// Bits of the smallest f32 that overflows f16.
const INFINITE: u32 = 0x4780_0000;

#[inline(always)]
fn widened(half: u16) -> f32 {
    let (sign, rest) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff) << 13);
    // The exponent biases of the two types differ by 112.
    let value = (f32::from_bits(rest) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = if rest >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits(sign | value | special)
}

#[inline(always)]
fn narrowed(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, rest) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let normal = rest.wrapping_add(0xfff + ((rest >> 13) & 1)).wrapping_sub(112 << 23) >> 13;
    // Near 0.5, f32 has the spacing of f16 subnormals.
    let subnormal = (f32::from_bits(rest) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if rest < NORMAL { subnormal } else { normal };
    let infinite = if rest > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    (sign | if rest < INFINITE { finite } else { infinite }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (value, expected) = (widened(bits), f16::from_bits(bits).to_f32());
            assert!(value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(), "{bits:#x}: {value}");
        }
    }

    #[test]
    fn f32_between_f16_are_narrowed_to_the_nearest() {
        for bits in 0..=u16::MAX {
            let half = widened(bits).to_bits();
            let between = [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff].map(|rest| half.wrapping_add(rest));
            for value in between.into_iter().chain([u32::from(bits) << 16]).map(f32::from_bits) {
                let (found, expected) = (f16::from_bits(narrowed(value)), f16::from_f32(value));
                assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{value:e}");
            }
        }
    }
}
