//! Quantized rows: packed integers, followed by a scale and a bias.

use super::arch::{Arch, mul_add_one};
use half::f16;
use pulp::{Simd, WithSimd};
use rewire_graph::DType;

/// A matrix of quantized rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    bytes: &'a [u8],
    /// Bits per element.
    bits: usize,
    /// Row stride in elements.
    pitch: usize,
    /// Bytes per row.
    row: usize,
}

/// Dequantizes adjacent elements of a row.
struct Neighbours<'a, 'o> {
    part: Part<'a>,
    bits: usize,
    out: &'o mut [f32],
}

/// Dequantizes elements at arbitrary offsets.
struct Scattered<'a, 'o> {
    rows: Rows<'a>,
    at: &'o [usize],
    out: &'o mut [f32],
}

/// The rest of a row from an element on: bytes from that element's byte on, number of elements to skip in it, scale and bias.
struct Part<'a> {
    bytes: &'a [u8],
    skipped: usize,
    scale: f32,
    bias: f32,
}

impl<'a> Rows<'a> {
    /// Rows in memory of `count` elements, with a row stride of `pitch` elements.
    pub(super) fn new(dtype: DType, memory: &'a [u8], (count, pitch): (usize, usize)) -> Self {
        let bits = dtype.format().bits;
        let bytes = |elements: usize| elements.saturating_mul(bits) / 8;
        Self { bytes: memory.get(..bytes(count)).unwrap_or(&[]), bits, pitch, row: bytes(pitch) }
    }

    /// Dequantizes adjacent elements of a row, from offset `start` on.
    pub(super) fn floats(self, start: usize, out: &mut [f32]) {
        let Some(part) = self.part(start) else { return };
        Arch::chosen().dispatch(Neighbours { part, bits: self.bits, out });
    }

    /// Dequantizes the elements at offsets `at`. Elements out of range are zero.
    pub(super) fn gather(self, at: &[usize], out: &mut [f32]) {
        Arch::chosen().dispatch(Scattered { rows: self, at, out });
    }

    #[inline(always)]
    fn part(&self, start: usize) -> Option<Part<'a>> {
        let pitch = self.pitch.max(1);
        let (number, column) = (start / pitch, start % pitch);
        let row = self.bytes.get(number * self.row..)?.get(..self.row)?;
        let (bytes, scale, bias) = match self.bits {
            8 => {
                let (bytes, &[a, b, c, d, e, f, g, h]) = row.split_last_chunk()?;
                (bytes, f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]))
            }
            _ => {
                let (bytes, &[a, b, c, d]) = row.split_last_chunk()?;
                (bytes, f16::from_le_bytes([a, b]).to_f32(), f16::from_le_bytes([c, d]).to_f32())
            }
        };
        let of_byte = 8 / self.bits;
        Some(Part { bytes: bytes.get(column / of_byte..)?, skipped: column % of_byte, scale, bias })
    }
}

impl WithSimd for Neighbours<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.bits {
            8 => self.part.floats::<S, 8>(self.out),
            4 => self.part.floats::<S, 4>(self.out),
            _ => self.part.floats::<S, 2>(self.out),
        }
    }
}

impl WithSimd for Scattered<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (out, &at) in self.out.iter_mut().zip(self.at) {
            *out = self.rows.part(at).and_then(|part| part.element::<S>(self.rows.bits)).unwrap_or(0.0);
        }
    }
}

impl Part<'_> {
    #[inline(always)]
    fn floats<S: Simd, const BITS: usize>(&self, out: &mut [f32]) {
        let of_byte = 8 / BITS;
        let value = |byte: u8, n: usize| {
            let integer = byte >> (n * BITS) & (((1u16 << BITS) - 1) as u8);
            mul_add_one::<S>(f32::from(integer), self.scale, self.bias)
        };
        let bytes = match self.skipped {
            0 => self.bytes,
            skipped => {
                let Some((&first, rest)) = self.bytes.split_first() else { return };
                out.iter_mut().zip(skipped..of_byte).for_each(|(out, n)| *out = value(first, n));
                rest
            }
        };
        let done = if self.skipped == 0 { 0 } else { of_byte - self.skipped };
        let whole = out.get_mut(done..).unwrap_or_default();
        for (out, &byte) in whole.chunks_mut(of_byte).zip(bytes) {
            out.iter_mut().enumerate().for_each(|(n, out)| *out = value(byte, n));
        }
    }

    #[inline(always)]
    fn element<S: Simd>(&self, bits: usize) -> Option<f32> {
        let integer = self.bytes.first()? >> (self.skipped * bits) & (((1u16 << bits) - 1) as u8);
        Some(mul_add_one::<S>(f32::from(integer), self.scale, self.bias))
    }
}
