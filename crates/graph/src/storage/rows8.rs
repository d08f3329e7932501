//! Rows of 8-bit integers, a scale and a bias, byte for byte as fbgemm has them.

/// Bytes of the scale and the bias.
const PARAMETERS: usize = 8;

/// What keeps the inverse of the extent of a row finite.
const LEAST_EXTENT: f32 = 1e-8;

/// The numbers of a row.
pub(crate) fn decode(row: &[u8]) -> Vec<f64> {
    let Some((elements, &[a, b, c, d, e, f, g, h])) = row.split_last_chunk::<PARAMETERS>() else { return vec![] };
    let (scale, bias) = (f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]));
    elements.iter().map(|&q| f32::from(q).mul_add(scale, bias).into()).collect()
}

/// The row of numbers: the least of them is 0 and the greatest 255.
pub(crate) fn encode(values: &[f64]) -> Vec<u8> {
    let values = || values.iter().map(|&value| value as f32);
    let (least, greatest) = (values().reduce(f32::min).unwrap_or(0.0), values().reduce(f32::max).unwrap_or(0.0));
    let extent = greatest - least;
    let inverse = 255.0 / (extent + LEAST_EXTENT);
    let elements = values().map(|value| ((value - least) * inverse).round_ties_even() as u8);
    let parameters = [extent / 255.0, least].map(f32::to_le_bytes);
    elements.chain(parameters.into_iter().flatten()).collect()
}
