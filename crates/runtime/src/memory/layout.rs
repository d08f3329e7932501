use rewire_graph::{DType, HostTensor};
use std::borrow::Cow;

/// The memory layout of a tensor, see [`rewire_graph::Format`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub dtype: DType,
    pub shape: Vec<usize>,
}

impl Layout {
    pub fn new(dtype: DType, shape: Vec<usize>) -> Self {
        Self { dtype, shape }
    }

    /// Number of elements with padding, if an `i32` can index them.
    pub fn elements(&self) -> Option<usize> {
        self.dtype.format().elements(&self.shape).filter(|&elements| i32::try_from(elements).is_ok())
    }

    /// Bytes with padding; 0 if an extent is 0.
    pub fn bytes(&self) -> u64 {
        self.elements().map_or(u64::MAX, |elements| self.dtype.format().bytes(elements as u64))
    }

    /// True if there is no padding.
    pub fn is_dense(&self) -> bool {
        self.dtype.format().is_dense(&self.shape)
    }

    /// The elements of a host tensor of this shape and type, with padding.
    pub fn pad<'a>(&self, tensor: &'a HostTensor) -> Cow<'a, [u8]> {
        let format = self.dtype.format();
        if self.is_dense() {
            return Cow::Borrowed(tensor.bytes());
        }
        let elements = format.elements(&self.shape).unwrap_or(0);
        let mut padded = vec![0; format.bytes(elements as u64) as usize];
        format.to_kernels(&self.shape, tensor.bytes(), &mut padded);
        Cow::Owned(padded)
    }

    /// The host tensor in `padded`.
    pub fn unpad(&self, padded: &[u8]) -> Option<HostTensor> {
        let mut data = Vec::with_capacity(self.dtype.format().host_bytes(&self.shape)?);
        self.dtype.format().to_host(&self.shape, padded, &mut data);
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
            for dtype in DType::ALL.into_iter().filter(|dtype| dtype.format().host_bytes(&shape).is_some()) {
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
