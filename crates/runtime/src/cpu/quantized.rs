//! Rows of integers of few bits that end with a scale and a bias.

use half::f16;
use pulp::Arch;
use rewire_graph::DType;

/// Rows in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    bytes: &'a [u8],
    /// Bits of an element.
    bits: usize,
    /// Elements from one row to the next.
    pitch: usize,
    /// Bytes of a row.
    row: usize,
}

/// The bytes of a row from one with an element on, the elements of it that come before, and what they are scaled by.
struct Part<'a> {
    bytes: &'a [u8],
    skipped: usize,
    scale: f32,
    bias: f32,
}

impl<'a> Rows<'a> {
    /// Rows in the room of `count` elements, `pitch` from one row to the next.
    pub(super) fn new(dtype: DType, memory: &'a [u8], (count, pitch): (usize, usize)) -> Self {
        let bits = dtype.format().bits;
        let bytes = |elements: usize| elements.saturating_mul(bits) / 8;
        Self { bytes: memory.get(..bytes(count)).unwrap_or(&[]), bits, pitch, row: bytes(pitch) }
    }

    /// Copies neighbouring elements of a row from `start` on.
    pub(super) fn floats(self, start: usize, out: &mut [f32]) {
        let Some(part) = self.part(start) else { return };
        Arch::new().dispatch(|| match self.bits {
            8 => part.floats::<8>(out),
            4 => part.floats::<4>(out),
            _ => part.floats::<2>(out),
        });
    }

    /// Copies the elements at these offsets, zero for those out of range.
    pub(super) fn gather(self, at: &[usize], out: &mut [f32]) {
        Arch::new().dispatch(|| {
            for (out, &at) in out.iter_mut().zip(at) {
                *out = self.part(at).and_then(|part| part.element(self.bits)).unwrap_or(0.0);
            }
        });
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

impl Part<'_> {
    #[inline(always)]
    fn floats<const BITS: usize>(&self, out: &mut [f32]) {
        let of_byte = 8 / BITS;
        let value = |byte: u8, n: usize| {
            f32::from(byte >> (n * BITS) & (((1u16 << BITS) - 1) as u8)).mul_add(self.scale, self.bias)
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
    fn element(&self, bits: usize) -> Option<f32> {
        let integer = self.bytes.first()? >> (self.skipped * bits) & (((1u16 << bits) - 1) as u8);
        Some(f32::from(integer).mul_add(self.scale, self.bias))
    }
}
