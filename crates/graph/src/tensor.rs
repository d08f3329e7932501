use crate::DType;
use crate::storage::Codec;
use half::{bf16, f16};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Elements that `Debug` shows.
const SHOWN: usize = 8;

/// A tensor on the host: row major, unpadded, little-endian. Clones share their elements.
///
/// `Debug` shows the type and the first elements, `f32[2] [0.5, 1.0]`.
#[derive(Clone)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    data: SharedBytes,
}

/// Memory that tensors share.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Why a host tensor cannot have its shape.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TensorSizeError {
    /// The data has a wrong size.
    #[error("a {dtype} tensor of shape {shape:?} takes {}, got {actual}", taken(*dtype, shape, *expected))]
    Data {
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// Bytes of the shape; `usize::MAX` on overflow, or if the type does not support the row width.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// Memory for the data cannot be allocated.
    #[error("no memory for the {bytes} bytes of a {dtype} tensor of shape {shape:?}")]
    Memory {
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// Bytes of the data.
        bytes: usize,
    },
}

/// Why a tensor cannot be converted to another storage type.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoredTypeError {
    /// One of the two types is not a float type, or does not support the row width.
    #[error("a {actual} tensor of shape {shape:?} cannot be stored as {expected}")]
    Type {
        /// The requested type.
        expected: DType,
        /// The tensor's type.
        actual: DType,
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// Memory for the result cannot be allocated.
    #[error(transparent)]
    Size(#[from] TensorSizeError),
}

fn taken(dtype: DType, shape: &[usize], expected: usize) -> String {
    let format = dtype.format();
    match shape.last().is_none_or(|&width| format.has_rows_of(width)) {
        true => format!("{expected} bytes"),
        false => format!("rows of a multiple of {} elements", format.multiple),
    }
}

impl HostTensor {
    /// A tensor from bytes.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `data` is not `shape` elements of `dtype`.
    pub fn from_bytes(dtype: DType, shape: Vec<usize>, data: Vec<u8>) -> Result<Self, TensorSizeError> {
        Self::from_shared(dtype, shape, Arc::new(data))
    }

    /// A tensor from a copy of bytes.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `data` is not `shape` elements of `dtype`, or memory for the copy cannot be allocated.
    pub fn copied(dtype: DType, shape: Vec<usize>, data: &[u8]) -> Result<Self, TensorSizeError> {
        let mut copy = Self::reserve(dtype, &shape, data.len())?;
        copy.extend_from_slice(data);
        Self::from_bytes(dtype, shape, copy)
    }

    /// A tensor in shared memory. Its bytes must not change.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, SharedBytes};
    /// let bytes: SharedBytes = std::sync::Arc::new(1.5f32.to_le_bytes());
    /// let [row, column] = [vec![1, 1], vec![1]].map(|shape| HostTensor::from_shared(DType::F32, shape, bytes.clone()));
    /// assert_eq!(row?.to_f32(), column?.to_f32());
    /// # Ok::<(), rewire_graph::TensorSizeError>(())
    /// ```
    ///
    /// # Errors
    /// [`TensorSizeError`] if `data` is not `shape` elements of `dtype`.
    pub fn from_shared(dtype: DType, shape: Vec<usize>, data: SharedBytes) -> Result<Self, TensorSizeError> {
        let expected = dtype.format().host_bytes(&shape).unwrap_or(usize::MAX);
        let actual = (*data).as_ref().len();
        if expected == actual {
            Ok(Self { dtype, shape, data })
        } else {
            Err(TensorSizeError::Data { dtype, shape, expected, actual })
        }
    }

    /// Bytes of a tensor, if they do not overflow.
    fn size(dtype: DType, shape: &[usize]) -> Result<usize, TensorSizeError> {
        let bytes = dtype.format().host_bytes(shape).filter(|&bytes| bytes <= isize::MAX as usize);
        bytes.ok_or_else(|| TensorSizeError::Data { dtype, shape: shape.to_vec(), expected: usize::MAX, actual: 0 })
    }

    /// Memory for the data of a tensor.
    fn reserve(dtype: DType, shape: &[usize], bytes: usize) -> Result<Vec<u8>, TensorSizeError> {
        let mut data = vec![];
        match data.try_reserve_exact(bytes) {
            Ok(()) => Ok(data),
            Err(_) => Err(TensorSizeError::Memory { dtype, shape: shape.to_vec(), bytes }),
        }
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`TensorSizeError`] if the number of elements overflows, or memory for them cannot be allocated.
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Result<Self, TensorSizeError> {
        let bytes = Self::size(dtype, &shape)?;
        let mut data = Self::reserve(dtype, &shape, bytes)?;
        data.resize(bytes, 0);
        Self::from_bytes(dtype, shape, data)
    }

    /// A tensor with elements generated in order.
    ///
    /// ```
    /// use rewire_graph::HostTensor;
    /// let mut last = 0u32;
    /// let t = HostTensor::generate([2, 2], || {
    ///     last += 1;
    ///     last
    /// })?;
    /// assert_eq!(t.values::<u32>(), Some(vec![1, 2, 3, 4]));
    /// # Ok::<(), rewire_graph::TensorSizeError>(())
    /// ```
    ///
    /// # Errors
    /// As [`HostTensor::zeros`].
    pub fn generate<T: Element>(
        shape: impl Into<Vec<usize>>,
        mut next: impl FnMut() -> T,
    ) -> Result<Self, TensorSizeError> {
        let shape = shape.into();
        let bytes = Self::size(T::DTYPE, &shape)?;
        let mut data = Self::reserve(T::DTYPE, &shape, bytes)?;
        while data.len() < bytes {
            next().append(&mut data);
        }
        Self::from_bytes(T::DTYPE, shape, data)
    }

    /// A tensor of these elements.
    ///
    /// ```
    /// use rewire_graph::HostTensor;
    /// let t = HostTensor::new([2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(t.values::<f32>(), Some(vec![1.0, 2.0, 3.0, 4.0]));
    /// assert_eq!(t.values::<i64>(), None);
    /// # Ok::<(), rewire_graph::TensorSizeError>(())
    /// ```
    ///
    /// # Errors
    /// [`TensorSizeError`] if `shape` has another number of elements, or memory for them cannot be allocated.
    pub fn new<T: Element>(shape: impl Into<Vec<usize>>, values: &[T]) -> Result<Self, TensorSizeError> {
        let shape = shape.into();
        let mut data = Self::reserve(T::DTYPE, &shape, size_of_elements::<T>(values.len()))?;
        values.iter().for_each(|value| value.append(&mut data));
        Self::from_bytes(T::DTYPE, shape, data)
    }

    /// An `F32` tensor: [`HostTensor::new`] for untyped literals.
    ///
    /// # Errors
    /// As [`HostTensor::new`].
    pub fn f32(shape: impl Into<Vec<usize>>, values: &[f32]) -> Result<Self, TensorSizeError> {
        Self::new(shape, values)
    }

    /// An `I64` tensor: [`HostTensor::new`] for untyped literals.
    ///
    /// # Errors
    /// As [`HostTensor::new`].
    pub fn i64(shape: impl Into<Vec<usize>>, values: &[i64]) -> Result<Self, TensorSizeError> {
        Self::new(shape, values)
    }

    /// A `U32` tensor: [`HostTensor::new`] for untyped literals.
    ///
    /// # Errors
    /// As [`HostTensor::new`].
    pub fn u32(shape: impl Into<Vec<usize>>, values: &[u32]) -> Result<Self, TensorSizeError> {
        Self::new(shape, values)
    }

    /// A vector of elements.
    pub fn vector<T: Element>(values: &[T]) -> Self {
        Self { dtype: T::DTYPE, shape: vec![values.len()], data: Arc::new(bytes_of(values)) }
    }

    /// An `I64` vector.
    pub fn lengths(values: &[i64]) -> Self {
        Self::vector(values)
    }

    /// All elements, if the tensor has this type.
    pub fn values<T: Element>(&self) -> Option<Vec<T>> {
        let size = T::DTYPE.format().bits / 8;
        (self.dtype == T::DTYPE).then(|| self.bytes().chunks_exact(size).map(T::read).collect())
    }

    /// A tensor of any type from f64: rounded for floats, truncated for integers.
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

    /// The shared memory of [`HostTensor::bytes`].
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

    /// The same elements with another shape of equal size.
    ///
    /// # Errors
    /// [`TensorSizeError`] if `shape` has another number of elements.
    pub fn reshape(self, shape: Vec<usize>) -> Result<Self, TensorSizeError> {
        Self::from_shared(self.dtype, shape, self.data)
    }

    /// The tensor with each row divided into groups, of which `shape` has one more dimension; unchanged if `shape` is not
    /// of these. Rows with a scale become `F32`.
    ///
    /// ```
    /// use rewire_graph::HostTensor;
    /// let rows = HostTensor::f32([2, 4], &[0.0; 8])?;
    /// assert_eq!(rows.clone().in_groups(&[2, 2, 2])?.shape(), [2, 2, 2]);
    /// assert_eq!(rows.in_groups(&[4, 2])?.shape(), [2, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StoredTypeError`] if memory for the result cannot be allocated.
    pub fn in_groups(self, shape: &[usize]) -> Result<Self, StoredTypeError> {
        match (shape, self.shape.as_slice()) {
            ([outer @ .., groups, group], [own @ .., width]) if own == outer && groups * group == *width => {
                let floats = if self.dtype.format().is_written() { self } else { self.stored_as(DType::F32)? };
                Ok(floats.reshape(shape.to_vec())?)
            }
            _ => Ok(self),
        }
    }

    /// All elements as f64; bools are 0 and 1. Integers beyond 2^53 are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype.format().codec {
            Codec::Float { decode, .. } => self.pieces().flat_map(decode).collect(),
            Codec::Integer { decode, .. } => self.pieces().flat_map(decode).map(|value| value as f64).collect(),
        }
    }

    /// All elements as f32, rounded.
    pub fn to_f32(&self) -> Vec<f32> {
        self.values().unwrap_or_else(|| self.to_f64().into_iter().map(|value| value as f32).collect())
    }

    /// All elements as integers; floats are truncated.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.dtype.format().codec {
            Codec::Float { decode, .. } => self.pieces().flat_map(decode).map(|value| value as i64).collect(),
            Codec::Integer { decode, .. } => self.pieces().flat_map(decode).collect(),
        }
    }

    /// The first infinite or NaN element, with its position.
    pub fn first_non_finite(&self) -> Option<(usize, f64)> {
        let Codec::Float { decode, .. } = self.dtype.format().codec else { return None };
        self.pieces().flat_map(decode).enumerate().find(|(_, value)| !value.is_finite())
    }

    /// The tensor with its last two dimensions swapped; unchanged if it has fewer. Rows with a scale become `F32`.
    ///
    /// ```
    /// use rewire_graph::HostTensor;
    /// let turned = HostTensor::f32([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?.transposed()?;
    /// assert_eq!((turned.shape(), turned.to_f32()), (&[3, 2][..], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TensorSizeError::Memory`] if memory for the result cannot be allocated.
    pub fn transposed(self) -> Result<Self, TensorSizeError> {
        let (format, mut shape) = (self.dtype.format(), self.shape.clone());
        let [.., rows, columns] = shape.as_mut_slice() else { return Ok(self) };
        let (height, width) = (*rows, *columns);
        if !format.is_written() {
            let data = self.encoded(DType::F32, width)?;
            return Self::from_bytes(DType::F32, shape, data)?.transposed();
        }
        std::mem::swap(rows, columns);
        let size = format.bits / 8;
        let mut data = Self::reserve(self.dtype, &shape, self.bytes().len())?;
        for matrix in self.bytes().chunks_exact((height * width * size).max(1)) {
            for column in 0..width {
                let elements = matrix.chunks_exact(size).skip(column).step_by(width);
                elements.for_each(|element| data.extend_from_slice(element));
            }
        }
        Self::from_bytes(self.dtype, shape, data)
    }

    /// The same numbers in another float storage type, rounded; the tensor itself if it already has that type.
    ///
    /// # Errors
    /// [`StoredTypeError`] if one of the two types is not a float type or does not support the row width, or memory for
    /// the result cannot be allocated.
    pub fn stored_as(self, dtype: DType) -> Result<Self, StoredTypeError> {
        if self.dtype == dtype {
            return Ok(self);
        }
        let width = self.shape.last().map_or(1, |&width| width);
        if !(self.dtype.is_float() && dtype.is_float() && dtype.format().has_rows_of(width)) {
            return Err(StoredTypeError::Type { expected: dtype, actual: self.dtype, shape: self.shape });
        }
        let data = self.encoded(dtype, width)?;
        Ok(Self::from_bytes(dtype, self.shape, data)?)
    }

    /// Converts the elements in blocks of rows: as f64, all elements of a byte tensor would need eight times its
    /// memory.
    fn encoded(&self, dtype: DType, width: usize) -> Result<Vec<u8>, TensorSizeError> {
        const ELEMENTS: usize = 1 << 12;
        let (Codec::Float { decode, .. }, false) = (&self.dtype.format().codec, self.is_empty()) else {
            return Ok(dtype.format().encode(&self.shape, &self.to_f64()));
        };
        let most = if dtype.format().is_written() { ELEMENTS } else { ELEMENTS.div_ceil(width) * width };
        let mut rows: Vec<f64> = Vec::with_capacity(most.min(self.len()));
        let mut data = Self::reserve(dtype, &self.shape, Self::size(dtype, &self.shape)?)?;
        for value in self.pieces().flat_map(decode) {
            rows.push(value);
            if rows.len() == most {
                data.extend(dtype.format().encode(&[rows.len() / width, width], &rows));
                rows.clear();
            }
        }
        data.extend(dtype.format().encode(&[rows.len() / width, width], &rows));
        Ok(data)
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.dtype.format().pieces(&self.shape, self.bytes())
    }
}

/// A Rust type of elements.
pub trait Element: Copy {
    /// The element type of a tensor of these elements.
    const DTYPE: DType;

    /// Appends the element's bytes.
    fn append(self, bytes: &mut Vec<u8>);

    /// Reads an element from its bytes; the default if there are too few.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($dtype:ident $ty:ty),*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;

            #[inline]
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                bytes.try_into().map(Self::from_le_bytes).unwrap_or_default()
            }
        }
    )*};
}

elements!(F32 f32, F16 f16, BF16 bf16, I64 i64, I32 i32, U32 u32);

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    #[inline]
    fn append(self, bytes: &mut Vec<u8>) {
        u32::from(self).append(bytes);
    }

    fn read(bytes: &[u8]) -> Self {
        u32::read(bytes) != 0
    }
}

fn size_of_elements<T: Element>(count: usize) -> usize {
    count * (T::DTYPE.format().bits / 8)
}

fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_elements::<T>(values.len()));
    values.iter().for_each(|value| value.append(&mut bytes));
    bytes
}

impl PartialEq for HostTensor {
    fn eq(&self, other: &Self) -> bool {
        (self.dtype, &self.shape, self.bytes()) == (other.dtype, &other.shape, other.bytes())
    }
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} ", self.dtype, self.shape)?;
        let mut list = f.debug_list();
        match self.dtype.format().codec {
            Codec::Float { decode, .. } => {
                list.entries(self.pieces().flat_map(decode).take(SHOWN).map(|value| value as f32))
            }
            Codec::Integer { decode, .. } => list.entries(self.pieces().flat_map(decode).take(SHOWN)),
        };
        if self.len() > SHOWN { list.finish_non_exhaustive() } else { list.finish() }
    }
}
