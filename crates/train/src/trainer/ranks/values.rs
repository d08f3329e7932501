//! The elements of a table or its moments, in memory or in a file.

use crate::step::{Initial, State};
use crate::trainer::TrainError;
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_runtime::FileFloats;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Elements that are converted at once.
const PART: usize = 1 << 20;

/// Elements of rows.
#[derive(Debug)]
pub enum Values {
    Memory(Vec<f32>),
    /// Shared with tensors that read them.
    File(Arc<FileFloats>),
}

impl Values {
    /// Zeros, in a file if a folder is given.
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

    /// The elements, to be changed; those in a file are copied to another one if a tensor shares them.
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

    /// A tensor of all elements, which shares those in a file.
    pub fn tensor(&self, shape: &[usize]) -> Result<HostTensor, TensorSizeError> {
        match self {
            Self::Memory(values) => HostTensor::f32(shape, values),
            Self::File(floats) => HostTensor::from_shared(DType::F32, shape.to_vec(), floats.clone()),
        }
    }

    /// Sets all elements to rows of a tensor, a part at a time.
    pub fn set(&mut self, whole: &HostTensor, rows: Range<usize>) -> Result<(), TrainError> {
        let (height, width) =
            (whole.shape().first().copied().unwrap_or(0), whole.shape().iter().skip(1).product::<usize>());
        let row_bytes = whole.bytes().len() / height.max(1);
        let step = (PART / width.max(1)).max(1);
        let values = self.as_mut_slice()?;
        for first in rows.clone().step_by(step) {
            let part = first..(first + step).min(rows.end);
            let shape = std::iter::once(part.len()).chain(whole.shape().iter().skip(1).copied()).collect();
            let bytes = &whole.bytes()[part.start * row_bytes..part.end * row_bytes];
            let own = HostTensor::copied(whole.dtype(), shape, bytes)?;
            let own = own.values().unwrap_or_else(|| own.to_f32());
            let place = (part.start - rows.start) * width;
            values[place..place + own.len()].copy_from_slice(&own);
        }
        Ok(())
    }

    /// Sets all elements to rows of the initial value of a state.
    pub fn begin(
        &mut self,
        state: &State,
        initial: impl Fn(&str) -> Option<HostTensor> + Sync,
        rows: Range<usize>,
    ) -> Result<(), TrainError> {
        match &state.initial {
            // Zeros take no space in a new file.
            Initial::Constant(0.0) => Ok(()),
            Initial::Constant(value) => {
                self.as_mut_slice()?.fill(*value);
                Ok(())
            }
            Initial::Parameter(_) | Initial::Kept(_) => self.set(&state.begin(initial)?, rows),
        }
    }

    /// Starts to read ranges of elements that are in a file.
    pub fn read_ahead(&self, ranges: impl Iterator<Item = Range<usize>>) {
        if let Self::File(floats) = self {
            floats.read_ahead(ranges);
        }
    }
}
