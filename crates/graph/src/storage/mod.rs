//! Memory layouts of elements, independent of arithmetic.

pub(crate) mod rows;

use crate::Scalar;

/// Elements that shaders read at once: rows are padded to whole groups of them.
const GROUP: usize = 4;

/// Bits of a word in shader memory.
const WORD: usize = 32;

/// A storage format: one for every [`crate::DType`].
///
/// Elements are little-endian, row major. A host tensor is not padded. In kernel memory every row is padded to whole
/// groups and words, a scalar is a row of one element, and the parameters of a row come last.
#[derive(Debug)]
pub struct Format {
    /// Name in messages, shaders and command lines; in upper case the name in safetensors.
    pub name: &'static str,
    /// The type in which arithmetic on the elements is done.
    pub scalar: Scalar,
    /// Bits of an element.
    pub bits: usize,
    /// Bits of row parameters that follow the elements, such as a scale; 0 for most formats.
    pub parameters: usize,
    /// Row lengths are multiples of this; 1 for most formats.
    pub multiple: usize,
    /// Converts rows to numbers and back.
    pub(crate) codec: Codec,
}

/// Converts between rows on the host and numbers.
#[derive(Debug)]
pub(crate) enum Codec {
    Float { decode: fn(&[u8]) -> Vec<f64>, encode: fn(&[f64]) -> Vec<u8> },
    Integer { decode: fn(&[u8]) -> Vec<i64>, encode: fn(&[f64]) -> Vec<u8> },
}

/// The rows of a tensor and their width; a scalar is a row of one element.
fn rows(shape: &[usize]) -> (Option<usize>, usize) {
    let (width, outer) = shape.split_last().map_or((1, &[][..]), |(&width, outer)| (width, outer));
    (outer.iter().try_fold(1usize, |rows, &n| rows.checked_mul(n)), width)
}

impl Format {
    /// True if kernels can write elements. Rows with parameters are only made as a whole, on the host.
    pub fn is_written(&self) -> bool {
        self.parameters == 0
    }

    /// Bytes of `elements` elements, without parameters; `u64::MAX` on overflow.
    pub fn bytes(&self, elements: u64) -> u64 {
        let bits = elements.checked_mul(self.bits as u64);
        bits.map_or(u64::MAX, |bits| bits.div_ceil(8))
    }

    /// True if rows of this width can be stored.
    pub fn has_rows_of(&self, width: usize) -> bool {
        width.is_multiple_of(self.multiple)
    }

    /// Bytes of a row of a host tensor, if rows of this width can be stored.
    pub fn row_bytes(&self, width: usize) -> Option<usize> {
        let bits = width.checked_mul(self.bits).filter(|_| self.has_rows_of(width))?;
        Some(bits.div_ceil(8) + self.parameters / 8)
    }

    /// Elements of a row with this many bytes, if such rows can be stored.
    pub fn row_elements(&self, bytes: usize) -> Option<usize> {
        let width = bytes.checked_sub(self.parameters / 8)?.checked_mul(8)? / self.bits;
        (self.row_bytes(width) == Some(bytes)).then_some(width)
    }

    /// Bytes of a host tensor.
    pub fn host_bytes(&self, shape: &[usize]) -> Option<usize> {
        let (rows, width) = rows(shape);
        self.row_bytes(width)?.checked_mul(rows?)
    }

    /// Elements of a row in kernel memory with its padding, without parameters.
    pub fn filled(&self, width: usize) -> Option<usize> {
        width.checked_next_multiple_of(self.group())
    }

    /// Row lengths in kernel memory are multiples of this many elements.
    pub fn group(&self) -> usize {
        GROUP.max(WORD / self.bits)
    }

    /// The pitch of rows in kernel memory, in elements.
    pub fn pitch(&self, width: usize) -> Option<usize> {
        self.filled(width)?.checked_add(self.row_parameters())
    }

    /// The space of row parameters, in elements.
    pub fn row_parameters(&self) -> usize {
        self.parameters / self.bits
    }

    /// Elements of a tensor in kernel memory, with padding and parameters.
    pub fn elements(&self, shape: &[usize]) -> Option<usize> {
        let (rows, width) = rows(shape);
        self.pitch(width)?.checked_mul(rows?)
    }

    /// True if a host tensor of this shape has the same layout in kernel memory.
    pub fn is_dense(&self, shape: &[usize]) -> bool {
        shape.last().is_some_and(|&width| self.filled(width) == Some(width))
    }

    /// Copies rows of a host tensor of this shape to kernel memory, as many as both sides hold.
    pub fn to_kernels(&self, shape: &[usize], host: &[u8], memory: &mut [u8]) {
        let Some((row, pitch)) = self.strides(shape) else { return };
        let parameters = self.parameters / 8;
        for (from, to) in host.chunks(row).zip(memory.chunks_exact_mut(pitch)) {
            let (elements, tail) = from.split_at(from.len().min(row - parameters));
            to[..elements.len()].copy_from_slice(elements);
            to[pitch - parameters..][..tail.len()].copy_from_slice(tail);
        }
    }

    /// Appends the rows of a tensor in kernel memory to `host`, in the layout of a host tensor.
    pub fn to_host(&self, shape: &[usize], memory: &[u8], host: &mut Vec<u8>) {
        let (Some((row, pitch)), (Some(rows), _)) = (self.strides(shape), rows(shape)) else { return };
        let parameters = self.parameters / 8;
        for from in memory.chunks_exact(pitch).take(rows) {
            host.extend_from_slice(&from[..row - parameters]);
            host.extend_from_slice(&from[pitch - parameters..]);
        }
    }

    /// Bytes of a row on the host and in kernel memory; `None` if rows are empty.
    fn strides(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let (_, width) = rows(shape);
        let (row, pitch) = (self.row_bytes(width)?, self.pitch(width)?.checked_mul(self.bits)? / 8);
        (row > 0).then_some((row, pitch))
    }

    /// Bytes of a host tensor with these numbers: rounded for floats, truncated for integers.
    pub(crate) fn encode(&self, shape: &[usize], values: &[f64]) -> Vec<u8> {
        let (Codec::Float { encode, .. } | Codec::Integer { encode, .. }) = self.codec;
        if self.is_written() {
            return encode(values);
        }
        let (count, width) = rows(shape);
        let row = |n: usize| values.get(n * width..(n + 1) * width).unwrap_or(&[]);
        (0..count.unwrap_or(0)).flat_map(|n| encode(row(n))).collect()
    }

    /// Parts of a host tensor that can be converted independently.
    pub(crate) fn pieces<'a>(&self, shape: &[usize], bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        /// Elements per part, if rows have no parameters.
        const PIECE: usize = 1 << 12;
        let row = if self.parameters > 0 { self.row_bytes(rows(shape).1) } else { Some(PIECE * self.bits / 8) };
        bytes.chunks(row.unwrap_or(usize::MAX).max(1))
    }
}

/// The numbers of little-endian elements.
pub(crate) fn decode<T, const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&bytes| number(bytes)).collect()
}

/// The little-endian elements of numbers.
pub(crate) fn encode<const N: usize>(values: &[f64], bytes: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}

#[cfg(test)]
mod tests {
    use crate::{DType, HostTensor};

    #[test]
    fn large_tensors_convert_like_their_rows() {
        for (rows, width) in [(7000, 5), (900, 40), (3, 20_000), (1 << 14, 1)] {
            let values: Vec<f64> = (0..rows * width).map(|n| (n % 991) as f64 / 8.0).collect();
            let floats = HostTensor::from_f64(DType::F32, vec![rows, width], &values).unwrap();
            let takes = |dtype: &DType| dtype.is_float() && dtype.format().has_rows_of(width);
            for dtype in DType::ALL.into_iter().filter(takes) {
                let expected = HostTensor::from_f64(dtype, vec![rows, width], &values).unwrap();
                assert_eq!(floats.clone().stored_as(dtype), Ok(expected), "{dtype}");
            }
        }
    }

    #[test]
    fn filling_is_undone() {
        for shape in
            [vec![], vec![3], vec![4], vec![2, 5], vec![2, 3, 1], vec![3, 2, 24], vec![0, 3], vec![0, 8], vec![3, 0]]
        {
            let count: usize = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|n| n as f64).collect();
            let width = shape.last().copied().unwrap_or(1);
            for dtype in DType::ALL.into_iter().filter(|dtype| dtype.format().has_rows_of(width)) {
                let (format, tensor) = (dtype.format(), HostTensor::from_f64(dtype, shape.clone(), &values).unwrap());
                let mut memory = vec![0xa5; format.bytes(format.elements(&shape).unwrap() as u64) as usize];
                format.to_kernels(&shape, tensor.bytes(), &mut memory);
                let mut host = vec![];
                format.to_host(&shape, &memory, &mut host);
                assert_eq!(host, tensor.bytes(), "{dtype} {shape:?}");
                assert_eq!(format.host_bytes(&shape), Some(host.len()));
                if format.is_dense(&shape) {
                    assert_eq!(host, memory, "{dtype} {shape:?}");
                }
            }
        }
    }

    /// The nearer one of the two neighbouring numbers; on a tie, the even one.
    #[test]
    fn upper_halves_are_the_nearest() {
        let mut bits: u32 = 1;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(0x9E37_79B9).wrapping_add(0x7f4a_7c15);
            for bits in [bits, bits & 0xffff_8000, bits | 0x7fff] {
                let value = f64::from(f32::from_bits(bits));
                let stored = HostTensor::from_f64(DType::BF16, vec![1], &[value]).unwrap();
                let (below, found) = (bits >> 16, u32::from(u16::from_le_bytes(stored.bytes().try_into().unwrap())));
                let number = |half: u32| f64::from(f32::from_bits(half << 16));
                if value.is_nan() {
                    assert!(number(found).is_nan(), "{bits:x}");
                } else if number(below + 1).is_finite() {
                    let (down, up) = ((value - number(below)).abs(), (number(below + 1) - value).abs());
                    let nearest = if down < up || down == up && below & 1 == 0 { below } else { below + 1 };
                    assert_eq!(found, nearest, "{bits:x}");
                }
            }
        }
    }
}
