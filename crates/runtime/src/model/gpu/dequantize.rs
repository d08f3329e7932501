//! Converts 8-bit rows to f16.

use crate::RuntimeError;
use rewire_graph::{DType, HostTensor, StoredTypeError};

/// An infinite f16, the largest f16, and all bits except the sign.
const INFINITE: u16 = 0x7c00;
const LARGEST: u16 = 0x7bff;
const MAGNITUDE: u16 = 0x7fff;

/// The values of 8-bit rows as f16, limited to the largest f16, as kernels that read the rows compute them.
/// `transposed` exchanges the last two dimensions.
pub(super) fn f16(rows: &HostTensor, transposed: bool) -> Result<HostTensor, RuntimeError> {
    let plan = |reason: String| RuntimeError::Plan { reason };
    let stored = rows.clone().stored_as(DType::F16).map_err(|error| match error {
        StoredTypeError::Type { .. } => plan(error.to_string()),
        StoredTypeError::Size(_) => RuntimeError::Memory { reason: error.to_string() },
    })?;
    let (words, _) = stored.bytes().as_chunks();
    let mut words: Vec<u16> = words.iter().map(|bytes| finite(u16::from_le_bytes(*bytes))).collect();
    let mut shape = stored.shape().to_vec();
    if let (true, [.., height, width]) = (transposed, shape.as_mut_slice()) {
        let (rows, columns) = (*height, *width);
        let matrices = words.chunks_exact((rows * columns).max(1));
        let column = |matrix: &[u16], n: usize| matrix.iter().skip(n).step_by(columns).copied().collect::<Vec<_>>();
        words = matrices.flat_map(|matrix| (0..columns).flat_map(move |n| column(matrix, n))).collect();
        std::mem::swap(height, width);
    }
    let bytes = words.into_iter().flat_map(u16::to_le_bytes).collect();
    HostTensor::from_bytes(DType::F16, shape, bytes).map_err(|error| plan(error.to_string()))
}

/// The largest f16 of the same sign in place of an infinite one.
fn finite(half: u16) -> u16 {
    if half & MAGNITUDE == INFINITE { half & !MAGNITUDE | LARGEST } else { half }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_values_are_within_the_largest_and_lie_either_way() {
        let values: Vec<f32> = (0..24).map(|n| [1e6, -1e6, 0.5][n % 3] * (n + 1) as f32).collect();
        let rows = HostTensor::f32(vec![2, 3, 4], &values).unwrap().stored_as(DType::Rows8).unwrap();
        let expected = |value: f32| half_of(value.clamp(-65504.0, 65504.0));
        let plain = f16(&rows, false).unwrap();
        assert_eq!(plain.shape(), [2, 3, 4]);
        assert_eq!(plain.to_f32(), rows.to_f32().into_iter().map(expected).collect::<Vec<_>>());
        assert!(plain.to_f32().contains(&65504.0) && plain.to_f32().contains(&-65504.0));
        let turned = f16(&rows, true).unwrap();
        assert_eq!((turned.shape(), turned.to_f32()), (&[2, 4, 3][..], plain.transposed().unwrap().to_f32()));
    }

    fn half_of(value: f32) -> f32 {
        HostTensor::f32(vec![1], &[value]).unwrap().stored_as(DType::F16).unwrap().to_f32()[0]
    }
}
