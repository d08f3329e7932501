//! Safetensors files with PyTorch's and ONNX's element types.

use crate::elements::{Elements, encoded};
use crate::{ImportError, ScalarType};
use rewire_graph::HostTensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;

/// A tensor with its element type. Its storage type is [`ScalarType::dtype`].
#[derive(Clone, Debug)]
pub struct TypedTensor {
    /// The element type.
    pub ty: ScalarType,
    /// The elements.
    pub tensor: HostTensor,
}

impl TypedTensor {
    /// Creates a tensor from its elements as little-endian bytes in row-major order. Bools are one byte each.
    ///
    /// # Errors
    /// [`ImportError`] if the number of bytes does not match the shape.
    pub fn from_bytes(name: &str, ty: ScalarType, shape: &[usize], bytes: &[u8]) -> Result<Self, ImportError> {
        let count = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
        let expected = count.and_then(|count| count.checked_mul(ty.bytes()));
        if expected != Some(bytes.len()) {
            return Err(ImportError::program(name, format!("{} bytes for {shape:?} of {ty}", bytes.len())));
        }
        let strides: Vec<usize> = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
        let elements = Elements { storage: bytes, ty, sizes: shape, strides: &strides, offset: 0 };
        Ok(Self { ty, tensor: elements.tensor(name)? })
    }

    /// The elements as bytes, in the format of [`TypedTensor::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        encoded(&self.tensor, self.ty)
    }
}

impl From<HostTensor> for TypedTensor {
    /// A tensor with the element type of its storage. Rows with a scale become floats.
    fn from(tensor: HostTensor) -> Self {
        Self { ty: ScalarType::of_dtype(tensor.dtype()).unwrap_or(ScalarType::F32), tensor }
    }
}

const TYPES: [(ScalarType, Dtype); 13] = [
    (ScalarType::Bool, Dtype::BOOL),
    (ScalarType::U8, Dtype::U8),
    (ScalarType::I8, Dtype::I8),
    (ScalarType::U16, Dtype::U16),
    (ScalarType::I16, Dtype::I16),
    (ScalarType::U32, Dtype::U32),
    (ScalarType::I32, Dtype::I32),
    (ScalarType::U64, Dtype::U64),
    (ScalarType::I64, Dtype::I64),
    (ScalarType::F16, Dtype::F16),
    (ScalarType::BF16, Dtype::BF16),
    (ScalarType::F32, Dtype::F32),
    (ScalarType::F64, Dtype::F64),
];

/// Reads the tensors of a safetensors file by name.
///
/// # Errors
/// [`ImportError`] if the file is invalid or has tensors of other types.
pub fn deserialize(bytes: &[u8]) -> Result<BTreeMap<String, TypedTensor>, ImportError> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| ImportError::archive("the tensors", error))?;
    let tensors = file.iter().map(|(name, view)| {
        let ty = TYPES.iter().find(|(_, dtype)| *dtype == view.dtype()).map(|(ty, _)| *ty);
        let ty =
            ty.ok_or_else(|| ImportError::program(name, format!("the type {:?} is not supported", view.dtype())))?;
        Ok((name.to_owned(), TypedTensor::from_bytes(name, ty, view.shape(), view.data())?))
    });
    tensors.collect()
}

/// Writes tensors as a safetensors file.
///
/// # Errors
/// [`ImportError`] if a tensor is not stored in the storage type of its element type.
pub fn serialize(tensors: &BTreeMap<String, TypedTensor>) -> Result<Vec<u8>, ImportError> {
    let mut encodings = vec![];
    for (name, TypedTensor { ty, tensor }) in tensors {
        if tensor.dtype() != ty.dtype() {
            return Err(ImportError::program(name, format!("{} stored as {}", ty, tensor.dtype())));
        }
        encodings.push((name, *ty, tensor.shape().to_vec(), encoded(tensor, *ty)));
    }
    let mut views = vec![];
    for (name, ty, shape, bytes) in &encodings {
        // Safetensors has no name for this type, so the elements are stored as bytes.
        let bytes_of = if matches!(ty, ScalarType::I2 | ScalarType::I4) { Dtype::I8 } else { Dtype::U8 };
        let dtype = TYPES.iter().find(|(own, _)| own == ty).map_or(bytes_of, |(_, dtype)| *dtype);
        let view = TensorView::new(dtype, shape.clone(), bytes).map_err(|error| ImportError::program(name, error))?;
        views.push((name.as_str(), view));
    }
    safetensors::serialize(views, None).map_err(|error| ImportError::archive("the tensors", error))
}
