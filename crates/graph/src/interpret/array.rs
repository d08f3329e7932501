use crate::pointwise::in_range;
use crate::{DType, HostTensor, Layout, TensorSizeError, Type};

/// Elements of an [`Array`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Float(Vec<f64>),
    Integer(Vec<i64>),
}

/// A materialised value: row-major f64 or integers; bools are 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub(crate) shape: Vec<usize>,
    pub(super) data: Data,
}

impl Array {
    pub(super) fn from_tensor(tensor: &HostTensor) -> Self {
        let shape = tensor.shape().to_vec();
        if tensor.dtype().is_float() {
            Self { shape, data: Data::Float(tensor.to_f64()) }
        } else {
            Self { shape, data: Data::Integer(tensor.to_i64()) }
        }
    }

    pub(super) fn from_integers(shape: Vec<usize>, values: Vec<i64>) -> Self {
        Self { shape, data: Data::Integer(values) }
    }

    pub(crate) fn from_floats(shape: Vec<usize>, values: Vec<f64>) -> Self {
        Self { shape, data: Data::Float(values.into_iter().map(in_range).collect()) }
    }

    pub(crate) fn integers(&self) -> Vec<i64> {
        match &self.data {
            Data::Integer(values) => values.clone(),
            Data::Float(values) => values.iter().map(|&v| v as i64).collect(),
        }
    }

    pub(crate) fn float(&self, index: usize) -> f64 {
        match &self.data {
            Data::Float(values) => values.get(index).copied().unwrap_or(f64::NAN),
            Data::Integer(values) => values.get(index).map_or(f64::NAN, |&v| v as f64),
        }
    }

    pub(crate) fn integer(&self, index: usize) -> i64 {
        match &self.data {
            Data::Integer(values) => values.get(index).copied().unwrap_or(0),
            Data::Float(values) => values.get(index).map_or(0, |&v| v as i64),
        }
    }

    /// The same value with some rows replaced.
    pub(crate) fn with_rows(&self, places: impl Iterator<Item = usize>, rows: &Self) -> Self {
        let width: usize = self.shape.iter().skip(1).product();
        let mut data = self.data.clone();
        for (from, to) in places.enumerate() {
            let (from, to) = (from * width..(from + 1) * width, to * width..(to + 1) * width);
            match (&mut data, &rows.data) {
                (Data::Float(table), Data::Float(rows)) => table[to].copy_from_slice(&rows[from]),
                (Data::Integer(table), Data::Integer(rows)) => table[to].copy_from_slice(&rows[from]),
                _ => {}
            }
        }
        Self { shape: self.shape.clone(), data }
    }

    /// The number of elements that are at most `limit`; elements ascend.
    pub(super) fn count_until(&self, limit: i64) -> usize {
        match &self.data {
            Data::Integer(values) => values.partition_point(|&value| value <= limit),
            Data::Float(values) => values.partition_point(|&value| value as i64 <= limit),
        }
    }

    /// The flat index of coordinates, each clamped to its axis; `None` in an empty array.
    pub(super) fn offset(&self, index: impl IntoIterator<Item = i64>) -> Option<usize> {
        self.shape.iter().zip(index).try_fold(0, |flat, (&extent, i)| {
            let last = extent.checked_sub(1)?;
            Some(flat * extent + usize::try_from(i.max(0)).unwrap_or(0).min(last))
        })
    }

    pub(super) fn to_tensor(&self, ty: &Type) -> Result<HostTensor, TensorSizeError> {
        let dtype = if ty.layout == Layout::Host { DType::I64 } else { ty.dtype };
        let bytes: Vec<u8> = match &self.data {
            Data::Float(values) => {
                // Arithmetic is done in f32; stored results are rounded from that.
                let values: Vec<f64> = values.iter().map(|&value| (value as f32).into()).collect();
                dtype.format().encode(&self.shape, &values)
            }
            Data::Integer(values) if dtype == DType::I64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Data::Integer(values) => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
        };
        HostTensor::from_bytes(dtype, self.shape.clone(), bytes)
    }
}
