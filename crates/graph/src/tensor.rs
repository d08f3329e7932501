use crate::DType;
use crate::storage::Codec;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// A tensor on the host: row major, unpadded, little-endian. Copies share their elements.
#[derive(Clone)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    data: SharedBytes,
}

/// Memory that tensors share.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A host tensor whose data does not fit its shape.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("a {dtype} tensor of shape {shape:?} takes {expected} bytes, got {actual}")]
pub struct TensorSizeError {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Bytes the shape takes; `usize::MAX` if that overflows.
    pub expected: usize,
    /// Bytes given.
    pub actual: usize,
}

impl HostTensor {
    /// A tensor from bytes.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `data` is not `shape` elements of `dtype`.
    pub fn from_bytes(dtype: DType, shape: Vec<usize>, data: Vec<u8>) -> Result<Self, TensorSizeError> {
        Self::from_shared(dtype, shape, Arc::new(data))
    }

    /// A tensor in memory that has other owners too. Its bytes must stay the same.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `data` is not `shape` elements of `dtype`.
    pub fn from_shared(dtype: DType, shape: Vec<usize>, data: SharedBytes) -> Result<Self, TensorSizeError> {
        let expected = dtype.format().host_bytes(&shape).unwrap_or(usize::MAX);
        let actual = (*data).as_ref().len();
        if expected == actual {
            Ok(Self { dtype, shape, data })
        } else {
            Err(TensorSizeError { dtype, shape, expected, actual })
        }
    }

    /// An `F32` tensor.
    ///
    /// ```
    /// use rewire_graph::HostTensor;
    /// let t = HostTensor::f32(vec![2, 2], &[1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(t.to_f64(), [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), rewire_graph::TensorSizeError>(())
    /// ```
    ///
    /// # Errors
    /// [`TensorSizeError`] if `shape` has another number of elements.
    pub fn f32(shape: Vec<usize>, values: &[f32]) -> Result<Self, TensorSizeError> {
        Self::from_bytes(DType::F32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// An `I64` tensor.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `shape` has another number of elements.
    pub fn i64(shape: Vec<usize>, values: &[i64]) -> Result<Self, TensorSizeError> {
        Self::from_bytes(DType::I64, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A `U32` tensor.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `shape` has another number of elements.
    pub fn u32(shape: Vec<usize>, values: &[u32]) -> Result<Self, TensorSizeError> {
        Self::from_bytes(DType::U32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// An `I64` vector.
    pub fn lengths(values: &[i64]) -> Self {
        Self {
            dtype: DType::I64,
            shape: vec![values.len()],
            data: Arc::new(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()),
        }
    }

    /// A tensor of any type from doubles: rounded for floats, truncated for integers.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `shape` has another number of elements.
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Result<Self, TensorSizeError> {
        let data = dtype.format().encode(&shape, values);
        Self::from_bytes(dtype, shape, data)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements as little-endian bytes, row major.
    pub fn bytes(&self) -> &[u8] {
        (*self.data).as_ref()
    }

    /// The memory of [`HostTensor::bytes`], to share it.
    pub fn shared(&self) -> &SharedBytes {
        &self.data
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same elements in another shape of the same size.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `shape` has another number of elements.
    pub fn reshape(self, shape: Vec<usize>) -> Result<Self, TensorSizeError> {
        Self::from_shared(self.dtype, shape, self.data)
    }

    /// All elements as doubles; truth values are 0 and 1. Integers beyond 2^53 round.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype.format().codec {
            Codec::Float { decode, .. } => self.pieces().flat_map(decode).collect(),
            Codec::Integer { decode, .. } => self.pieces().flat_map(decode).map(|value| value as f64).collect(),
        }
    }

    /// All elements as floats, rounded to single precision.
    pub fn to_f32(&self) -> Vec<f32> {
        self.to_f64().into_iter().map(|value| value as f32).collect()
    }

    /// All elements as integers; floats are truncated.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.dtype.format().codec {
            Codec::Float { decode, .. } => self.pieces().flat_map(decode).map(|value| value as i64).collect(),
            Codec::Integer { decode, .. } => self.pieces().flat_map(decode).collect(),
        }
    }

    /// The first element that is infinite or no number, with its position.
    pub fn first_non_finite(&self) -> Option<(usize, f64)> {
        let Codec::Float { decode, .. } = self.dtype.format().codec else { return None };
        self.pieces().flat_map(decode).enumerate().find(|(_, value)| !value.is_finite())
    }

    /// The same numbers in another storage type of floats, rounded; this tensor itself where it has that type.
    ///
    /// # Errors
    /// The tensor's type where one of the two is no type of floats.
    pub fn stored_as(self, dtype: DType) -> Result<Self, DType> {
        if self.dtype == dtype {
            return Ok(self);
        }
        if !(self.dtype.is_float() && dtype.is_float()) {
            return Err(self.dtype);
        }
        let data = dtype.format().encode(&self.shape, &self.to_f64());
        Self::from_bytes(dtype, self.shape, data).map_err(|_| self.dtype)
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.dtype.format().pieces(&self.shape, self.bytes())
    }
}

impl PartialEq for HostTensor {
    fn eq(&self, other: &Self) -> bool {
        (self.dtype, &self.shape, self.bytes()) == (other.dtype, &other.shape, other.bytes())
    }
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTensor")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("bytes", &self.bytes())
            .finish()
    }
}
