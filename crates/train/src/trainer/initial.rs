use super::TrainError;
use crate::step::{Initial, State};
use rewire_graph::{DType, HostTensor, StoredTypeError, TensorSizeError};
use std::collections::BTreeMap;
use std::ops::Range;

/// The initial values of parameters, by name.
pub trait InitialValues: Sync {
    /// The initial value of a parameter; `None` if it has none.
    ///
    /// # Errors
    /// [`TensorSizeError`] if there is not enough memory for it.
    fn tensor(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError>;

    /// Rows of the initial value; `None` if it does not have this shape. A rank requests only the rows that it holds.
    ///
    /// # Errors
    /// As [`InitialValues::tensor`].
    fn rows(&self, name: &str, shape: &[usize], rows: Range<usize>) -> Result<Option<HostTensor>, TensorSizeError> {
        let Some(whole) = self.tensor(name)?.filter(|whole| whole.shape() == shape) else { return Ok(None) };
        let row = whole.bytes().len() / shape.first().copied().unwrap_or(1).max(1);
        let bytes = &whole.bytes()[rows.start * row..rows.end * row];
        HostTensor::copied(whole.dtype(), rows_of(shape, &rows), bytes).map(Some)
    }
}

impl<F: Fn(&str) -> Option<HostTensor> + Sync> InitialValues for F {
    fn tensor(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self(name))
    }
}

impl InitialValues for BTreeMap<String, HostTensor> {
    fn tensor(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self.get(name).cloned())
    }
}

/// The shape of a range of rows of a tensor.
pub(super) fn rows_of(shape: &[usize], rows: &Range<usize>) -> Vec<usize> {
    [rows.len()].into_iter().chain(shape.iter().skip(1).copied()).collect()
}

impl State {
    /// The initial value of the state.
    pub(super) fn begin(&self, initial: &dyn InitialValues) -> Result<HostTensor, TrainError> {
        let (name, tensor) = match &self.initial {
            Initial::Constant(value) => return Ok(self.filled(*value)?),
            Initial::Parameter(name) => (name, initial.tensor(name)?),
            Initial::Kept(name) => match initial.tensor(name)? {
                Some(tensor) => (name, Some(tensor)),
                None => return Ok(self.filled(0.0)?),
            },
        };
        self.floats(name, initial, tensor, &self.shape)
    }

    /// Rows of the initial value of the state.
    pub(super) fn begin_rows(&self, initial: &dyn InitialValues, rows: Range<usize>) -> Result<Vec<f32>, TrainError> {
        let shape = rows_of(&self.shape, &rows);
        match &self.initial {
            Initial::Constant(value) => Ok(vec![*value; shape.iter().product()]),
            Initial::Parameter(name) | Initial::Kept(name) => {
                let tensor = initial.rows(name, &self.shape, rows)?;
                Ok(self.floats(name, initial, tensor, &shape)?.to_f32())
            }
        }
    }

    /// The initial value, or some rows of it, as F32.
    fn floats(
        &self,
        name: &str,
        initial: &dyn InitialValues,
        tensor: Option<HostTensor>,
        shape: &[usize],
    ) -> Result<HostTensor, TrainError> {
        let floats = tensor.filter(|tensor| tensor.shape() == shape).map(|tensor| tensor.stored_as(DType::F32));
        match floats {
            Some(Ok(floats)) => Ok(floats),
            Some(Err(StoredTypeError::Size(error))) => Err(error.into()),
            Some(Err(StoredTypeError::Type { .. })) | None => {
                let (name, expected) = (name.to_owned(), format!("{:?}", self.shape));
                let actual = initial.tensor(&name)?;
                let actual = actual.map_or_else(|| "missing".to_owned(), |tensor| format!("{:?}", tensor.shape()));
                Err(TrainError::Parameter { name, expected, actual })
            }
        }
    }
}
