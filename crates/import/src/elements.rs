//! Elements of PyTorch and ONNX types as bytes.

use crate::{ImportError, ScalarType};
use half::{bf16, f16};
use rewire_graph::HostTensor;

/// The elements of a tensor in its storage.
pub(crate) struct Elements<'a> {
    pub storage: &'a [u8],
    pub ty: ScalarType,
    pub sizes: &'a [usize],
    pub strides: &'a [usize],
    pub offset: usize,
}

impl Elements<'_> {
    /// Reads the tensor in the storage type of its element type.
    pub fn tensor(&self, name: &str) -> Result<HostTensor, ImportError> {
        let failed = |source| ImportError::Tensor { name: name.to_owned(), source };
        let shape = self.sizes.to_vec();
        macro_rules! read {
            ($ty:ty, $convert:expr) => {{
                let values =
                    self.values(name, |bytes: [u8; size_of::<$ty>()]| $convert(<$ty>::from_le_bytes(bytes)))?;
                HostTensor::new(shape, &values).map_err(failed)
            }};
        }
        match self.ty {
            ScalarType::Bool => read!(u8, |x: u8| x != 0),
            ScalarType::U8 => read!(u8, i32::from),
            ScalarType::I8 => read!(i8, i32::from),
            ScalarType::U16 => read!(u16, i32::from),
            ScalarType::I16 => read!(i16, i32::from),
            ScalarType::I32 => read!(i32, |x: i32| x),
            ScalarType::U32 => read!(u32, i64::from),
            ScalarType::U64 | ScalarType::I64 => read!(i64, |x: i64| x),
            ScalarType::F32 => read!(f32, |x: f32| x),
            ScalarType::F64 => read!(f64, |x: f64| x as f32),
            // Real and imaginary parts become a last axis of extent 2.
            ScalarType::C64 => {
                let values = self.values(name, |bytes: [u8; 8]| bytes)?;
                let shape = [self.sizes, &[2]].concat();
                let reals = values.iter().flat_map(|bytes| bytes.chunks_exact(4));
                let parts: Vec<f32> = reals
                    .map(|real| real.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte)))
                    .map(f32::from_bits)
                    .collect();
                HostTensor::new(shape, &parts).map_err(failed)
            }
            ScalarType::F16 => {
                let values = self.values(name, |bytes: [u8; 2]| f16::from_le_bytes(bytes).to_f64())?;
                HostTensor::from_f64(self.ty.dtype(), shape, &values).map_err(failed)
            }
            ScalarType::BF16 => {
                let values = self.values(name, |bytes: [u8; 2]| bf16::from_le_bytes(bytes).to_f64())?;
                HostTensor::from_f64(self.ty.dtype(), shape, &values).map_err(failed)
            }
            // These types are stored with one element per byte.
            ScalarType::U2 | ScalarType::U4 => read!(u8, i32::from),
            ScalarType::I2 | ScalarType::I4 => read!(i8, i32::from),
            narrow => read!(u8, |bits: u8| narrow.decoded(bits) as f32),
        }
    }

    /// Reads the elements in row-major order.
    fn values<const N: usize, T>(&self, name: &str, read: impl Fn([u8; N]) -> T) -> Result<Vec<T>, ImportError> {
        debug_assert_eq!(N, self.ty.bytes(), "bytes of an element");
        let count: usize = self.sizes.iter().product();
        let mut values = Vec::with_capacity(count);
        let mut place = vec![0usize; self.sizes.len()];
        let outside = || ImportError::program(name, "the tensor reaches beyond its storage");
        for _ in 0..count {
            let mut at = self.offset;
            for (&coord, &stride) in place.iter().zip(self.strides) {
                at = coord.checked_mul(stride).and_then(|step| at.checked_add(step)).ok_or_else(outside)?;
            }
            let start = at.checked_mul(N).ok_or_else(outside)?;
            let bytes = start.checked_add(N).and_then(|end| self.storage.get(start..end)).ok_or_else(outside)?;
            let mut element = [0; N];
            element.copy_from_slice(bytes);
            values.push(read(element));
            for (coord, &extent) in place.iter_mut().zip(self.sizes).rev() {
                *coord += 1;
                if *coord < extent {
                    break;
                }
                *coord = 0;
            }
        }
        Ok(values)
    }
}

/// The elements of a tensor as little-endian bytes of type `ty`.
pub(crate) fn encoded(tensor: &HostTensor, ty: ScalarType) -> Vec<u8> {
    fn bytes<T, const N: usize>(values: Vec<T>, write: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.into_iter().flat_map(write).collect()
    }
    match ty {
        ScalarType::Bool => bytes(tensor.to_i64(), |x| [u8::from(x != 0)]),
        ScalarType::U2 | ScalarType::U4 | ScalarType::U8 => bytes(tensor.to_i64(), |x| (x as u8).to_le_bytes()),
        ScalarType::I2 | ScalarType::I4 | ScalarType::I8 => bytes(tensor.to_i64(), |x| (x as i8).to_le_bytes()),
        ScalarType::U16 | ScalarType::I16 => bytes(tensor.to_i64(), |x| (x as i16).to_le_bytes()),
        ScalarType::U32 => bytes(tensor.to_i64(), |x| (x as u32).to_le_bytes()),
        ScalarType::F64 => bytes(tensor.to_f64(), f64::to_le_bytes),
        ScalarType::F4E2M1
        | ScalarType::F8E4M3
        | ScalarType::F8E4M3Fnuz
        | ScalarType::F8E5M2
        | ScalarType::F8E5M2Fnuz
        | ScalarType::F8E8M0 => bytes(tensor.to_f64(), |x| [ty.encoded(x)]),
        _ => tensor.bytes().to_vec(),
    }
}
