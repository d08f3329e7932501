use rewire_graph::{DType, HostTensor};
use std::borrow::Cow;

/// A tensor in memory: rows of elements, the row pitch a multiple of four elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub dtype: DType,
    pub shape: Vec<usize>,
}

impl Layout {
    pub fn new(dtype: DType, shape: Vec<usize>) -> Self {
        Self { dtype, shape }
    }

    /// Number of rows and elements a row.
    fn rows(&self) -> (usize, usize) {
        match self.shape.split_last() {
            Some((&width, outer)) => (outer.iter().product(), width),
            None => (1, 1),
        }
    }

    /// Elements with padding, if they can be addressed by an `i32`.
    pub fn elements(&self) -> Option<usize> {
        let (width, outer) = match self.shape.split_last() {
            Some((&width, outer)) => (width, outer),
            None => (1, &[][..]),
        };
        let pitch = width.checked_next_multiple_of(4)?;
        let elements = outer.iter().try_fold(pitch, |product, &n| product.checked_mul(n))?;
        i32::try_from(elements).is_ok().then_some(elements)
    }

    /// Bytes with padding; 0 where an extent is 0.
    pub fn bytes(&self) -> u64 {
        self.elements().map_or(u64::MAX, |elements| elements as u64 * self.dtype.bytes() as u64)
    }

    /// The elements of a host tensor of this shape and type, with padding.
    pub fn pad<'a>(&self, tensor: &'a HostTensor) -> Cow<'a, [u8]> {
        let (rows, width) = self.rows();
        if width % 4 == 0 {
            return Cow::Borrowed(tensor.bytes());
        }
        let size = self.dtype.bytes();
        let (row, pitch) = (width * size, width.next_multiple_of(4) * size);
        let mut padded = vec![0; rows * pitch];
        for (to, from) in padded.chunks_exact_mut(pitch).zip(tensor.bytes().chunks_exact(row.max(1))) {
            to[..row].copy_from_slice(from);
        }
        Cow::Owned(padded)
    }

    /// The host tensor that lies in `padded`.
    pub fn unpad(&self, padded: &[u8]) -> Option<HostTensor> {
        let (rows, width) = self.rows();
        let size = self.dtype.bytes();
        let (row, pitch) = (width * size, width.next_multiple_of(4) * size);
        let mut data = Vec::with_capacity(rows * row);
        if pitch > 0 {
            padded.chunks_exact(pitch).take(rows).for_each(|from| data.extend_from_slice(&from[..row]));
        }
        HostTensor::from_bytes(self.dtype, self.shape.clone(), data).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_undone() {
        for shape in [vec![], vec![3], vec![4], vec![2, 5], vec![2, 3, 1], vec![0, 3], vec![3, 0]] {
            let count: usize = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|n| n as f64).collect();
            for dtype in [DType::F32, DType::F16, DType::I64] {
                let tensor = HostTensor::from_f64(dtype, shape.clone(), &values).unwrap();
                let layout = Layout::new(dtype, shape.clone());
                let padded = layout.pad(&tensor);
                assert_eq!(padded.len() as u64, layout.bytes());
                assert_eq!(layout.unpad(&padded), Some(tensor));
            }
        }
    }

    #[test]
    fn a_size_beyond_32_bits_has_no_layout() {
        assert_eq!(Layout::new(DType::F32, vec![1 << 20, 1 << 12]).elements(), None);
        assert_eq!(Layout::new(DType::F32, vec![usize::MAX, 2]).bytes(), u64::MAX);
    }
}
