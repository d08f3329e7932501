//! Loops that are as fast as the processor or its memory.

use super::arch::{Arch, mul_add};
use pulp::{Simd, WithSimd};
use std::collections::TryReserveError;
use std::hint::black_box;

/// Multiply-adds of each of [`CHAINS`], enough to make synchronization of threads negligible.
const ROUNDS: u32 = 1 << 17;
/// Independent chains of multiply-adds, enough for two units with a latency of four cycles.
const CHAINS: usize = 12;

/// Computes multiply-adds in registers, with the chosen instruction set; returns the number of operations.
pub fn multiply_adds() -> f64 {
    Arch::chosen().dispatch(MultiplyAdds)
}

/// Reads all floats.
pub fn read(floats: &[f32]) {
    black_box(black_box(floats).iter().fold(0, |all, float| all ^ float.to_bits()));
}

/// Writes all floats.
pub fn write(floats: &mut [f32]) {
    black_box(floats).fill(black_box(0.0));
}

/// Copies all floats.
///
/// # Panics
/// If the slices differ in length.
pub fn copy(to: &mut [f32], from: &[f32]) {
    black_box(to).copy_from_slice(black_box(from));
}

/// Allocates floats and writes them, so that their pages are mapped.
///
/// # Errors
/// If there is no memory for them.
pub fn touched(count: usize) -> Result<Vec<f32>, TryReserveError> {
    let mut floats = vec![];
    floats.try_reserve_exact(count)?;
    floats.resize(count, 1.0);
    Ok(floats)
}

struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let factor = simd.splat_f32s(black_box(0.5));
        let mut chains = [simd.splat_f32s(black_box(1.0)); CHAINS];
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = mul_add(simd, *chain, factor, factor);
            }
        }
        black_box(chains);
        f64::from(ROUNDS) * (CHAINS * S::F32_LANES * 2) as f64
    }
}
