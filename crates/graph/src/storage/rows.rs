//! Rows of integers with few bits, a scale and a bias, byte for byte in fbgemm's format.

use half::f16;

/// Keeps the inverse of the range of a row of bytes finite.
const LEAST_EXTENT: f32 = 1e-8;

/// Decodes a row of bytes with an f32 scale and an f32 bias.
pub(crate) fn decode_bytes(row: &[u8]) -> Vec<f64> {
    let Some((elements, &[a, b, c, d, e, f, g, h])) = row.split_last_chunk() else { return vec![] };
    let (scale, bias) = (f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]));
    elements.iter().map(|&q| f32::from(q).mul_add(scale, bias).into()).collect()
}

/// Encodes a row of bytes: the minimum becomes 0, the maximum 255.
pub(crate) fn encode_bytes(values: &[f64]) -> Vec<u8> {
    let (least, greatest) = extremes(values);
    let extent = greatest - least;
    let inverse = 255.0 / (extent + LEAST_EXTENT);
    let elements = singles(values).map(|value| ((value - least) * inverse).round_ties_even() as u8);
    let parameters = [extent / 255.0, least].map(f32::to_le_bytes);
    elements.chain(parameters.into_iter().flatten()).collect()
}

/// The numbers of a row of integers of `BITS` bits, the first in the low bits of a byte, whose scale and bias are f16.
pub(crate) fn decode<const BITS: u32>(row: &[u8]) -> Vec<f64> {
    let Some((bytes, &[a, b, c, d])) = row.split_last_chunk() else { return vec![] };
    let [scale, bias] = [[a, b], [c, d]].map(|half| f16::from_le_bytes(half).to_f32());
    let elements = bytes.iter().flat_map(|&byte| (0..8 / BITS).map(move |n| byte >> (n * BITS) & most::<BITS>()));
    elements.map(|q| f32::from(q).mul_add(scale, bias).into()).collect()
}

/// Encodes a row of integers with `BITS` bits; the numbers fill whole bytes.
pub(crate) fn encode<const BITS: u32>(values: &[f64]) -> Vec<u8> {
    let (least, greatest) = extremes(values);
    let bias = f16::from_f32(least);
    let most = f32::from(most::<BITS>());
    let scale = f16::from_f32((greatest - bias.to_f32()) / most);
    let scale = if (1.0 / scale.to_f32()).is_infinite() { f16::ONE } else { scale };
    let inverse = 1.0 / scale.to_f32();
    let element = |value: f32| ((value - bias.to_f32()) * inverse).round_ties_even().clamp(0.0, most) as u8;
    let elements: Vec<u8> = singles(values).map(element).collect();
    let byte = |elements: &[u8]| elements.iter().rev().fold(0, |byte, q| byte << BITS | q);
    let parameters = [scale, bias].map(f16::to_le_bytes);
    elements.chunks(8 / BITS as usize).map(byte).chain(parameters.into_iter().flatten()).collect()
}

/// The largest integer with this many bits.
const fn most<const BITS: u32>() -> u8 {
    (1 << BITS) - 1
}

fn singles(values: &[f64]) -> impl Iterator<Item = f32> {
    values.iter().map(|&value| value as f32)
}

/// The minimum and maximum; the first one of several zeros.
fn extremes(values: &[f64]) -> (f32, f32) {
    let least = singles(values).reduce(|least, value| if value < least { value } else { least });
    let greatest = singles(values).reduce(|greatest, value| if value > greatest { value } else { greatest });
    (least.unwrap_or(0.0), greatest.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_extent_has_a_scale_of_one() {
        for value in [0.0, -0.0, 1.5, -1024.0] {
            let row = encode::<4>(&[value; 4]);
            assert_eq!(&row[..4], [&[0, 0], &f16::ONE.to_le_bytes()[..]].concat(), "{value}");
            assert_eq!(decode::<4>(&row), [value; 4]);
        }
    }

    /// The bias of these rows is above all elements, or the scale too small for an f16.
    #[test]
    fn biases_and_scales_are_rounded_to_f16() {
        let above = f64::from(f16::from_f32(1.0 + 0.75 / 1024.0).to_f32());
        let row = encode::<4>(&[1.0 + 0.75 / 1024.0; 4]);
        assert_eq!(&row[..2], [0xff, 0xff]);
        assert!(f16::from_le_bytes([row[2], row[3]]).to_f32() < 0.0);
        assert!(decode::<4>(&row).iter().all(|&value| value < above));
        let tiny = encode::<2>(&[0.0, 1e-8, 2e-8, 0.0, 0.0, 0.0, 0.0, 3e-8]);
        assert_eq!(tiny, [[0, 0], f16::ONE.to_le_bytes(), [0, 0]].concat());
        let huge = decode::<4>(&encode::<4>(&[-1e6, 0.0, 1.0, 2.0]));
        assert!(huge.iter().all(|value| !value.is_finite()));
    }

    #[test]
    fn the_first_element_is_in_the_low_bits() {
        let row = encode::<2>(&[0.0, 1.0, 2.0, 3.0, 3.0, 0.0, 0.5, 1.5]);
        assert_eq!(&row[..2], [0b11_10_01_00, 0b10_00_00_11]);
        assert_eq!(decode::<2>(&row), [0.0, 1.0, 2.0, 3.0, 3.0, 0.0, 0.0, 2.0]);
        assert_eq!(&encode::<4>(&[0.0, 15.0, 1.0, 2.0])[..2], [0xf0, 0x21]);
    }
}
