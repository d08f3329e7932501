//! The elements of a table or its moments, in memory or in a file.

use crate::step::{Initial, State};
use crate::trainer::initial::rows_of;
use crate::trainer::{InitialValues, TrainError};
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_runtime::FileFloats;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Elements converted per block.
const PART: usize = 1 << 20;

/// The elements of a column.
#[derive(Debug)]
pub enum Values {
    Memory(Vec<f32>),
    /// Tensors may share the file.
    File(Arc<FileFloats>),
}

impl Values {
    /// Zeros, in a file if `folder` is set.
    pub fn zeros(folder: Option<&Path>, len: usize) -> Result<Self, TrainError> {
        match folder {
            None => Ok(Self::Memory(vec![0.0; len])),
            Some(folder) => {
                let floats = FileFloats::zeros(folder, len);
                let failed = |source| TrainError::Folder { folder: folder.to_owned(), source };
                Ok(Self::File(Arc::new(floats.map_err(failed)?)))
            }
        }
    }

    pub fn as_slice(&self) -> &[f32] {
        match self {
            Self::Memory(values) => values,
            Self::File(floats) => floats.values(),
        }
    }

    /// The elements. A file that a tensor shares is copied first.
    pub fn as_mut_slice(&mut self) -> Result<&mut [f32], TrainError> {
        match self {
            Self::Memory(values) => Ok(values),
            Self::File(floats) => {
                if Arc::get_mut(floats).is_none() {
                    let failed = |source| TrainError::Folder { folder: floats.folder().to_owned(), source };
                    let copy = floats.copied().map_err(failed)?;
                    *floats = Arc::new(copy);
                }
                Ok(Arc::get_mut(floats).map_or(&mut [], FileFloats::values_mut))
            }
        }
    }

    /// A tensor of all elements. It shares a file's memory.
    pub fn tensor(&self, shape: &[usize]) -> Result<HostTensor, TensorSizeError> {
        match self {
            Self::Memory(values) => HostTensor::f32(shape, values),
            Self::File(floats) => HostTensor::from_shared(DType::F32, shape.to_vec(), floats.clone()),
        }
    }

    /// Sets all elements to rows of a tensor, block by block.
    pub fn set(&mut self, whole: &HostTensor, rows: Range<usize>) -> Result<(), TrainError> {
        let height = whole.shape().first().copied().unwrap_or(0);
        let row_bytes = whole.bytes().len() / height.max(1);
        self.set_parts(whole.shape(), rows, |part| {
            let bytes = &whole.bytes()[part.start * row_bytes..part.end * row_bytes];
            Ok(HostTensor::copied(whole.dtype(), rows_of(whole.shape(), &part), bytes)?.to_f32())
        })
    }

    /// Sets all elements, which must be zeros, to rows of the initial value of a state.
    pub fn begin(&mut self, state: &State, initial: &dyn InitialValues, rows: Range<usize>) -> Result<(), TrainError> {
        match &state.initial {
            // Unwritten zeros of a new file occupy no disk space.
            Initial::Constant(0.0) => Ok(()),
            _ => self.set_parts(&state.shape, rows, |part| state.begin_rows(initial, part)),
        }
    }

    /// Sets all elements to `rows` of a tensor of shape `shape`; `read` returns the elements of a range of rows.
    fn set_parts(
        &mut self,
        shape: &[usize],
        rows: Range<usize>,
        read: impl Fn(Range<usize>) -> Result<Vec<f32>, TrainError>,
    ) -> Result<(), TrainError> {
        let width = shape.iter().skip(1).product::<usize>();
        let step = (PART / width.max(1)).max(1);
        let values = self.as_mut_slice()?;
        for first in rows.clone().step_by(step) {
            let own = read(first..(first + step).min(rows.end))?;
            let place = (first - rows.start) * width;
            values[place..place + own.len()].copy_from_slice(&own);
        }
        Ok(())
    }

    /// Prefetches ranges of elements from a file.
    pub fn read_ahead(&self, ranges: impl Iterator<Item = Range<usize>>) {
        if let Self::File(floats) = self {
            floats.read_ahead(ranges);
        }
    }
}
