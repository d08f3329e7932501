use crate::weights::Weights;
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_runtime::{Backing, Parameters};
use std::sync::Arc;

/// The tensors of a checkpoint in one type.
pub(super) struct Stored<'a> {
    weights: &'a Weights<'a>,
    pub dtype: DType,
}

impl<'a> Stored<'a> {
    /// In the type that all floats of the checkpoint have, else f32.
    pub fn new(weights: &'a Weights<'a>) -> Self {
        let dtypes = || weights.names().filter_map(|name| weights.describe(name).map(|(dtype, _)| dtype));
        let mut floats = dtypes().filter(|dtype| dtype.is_float() && dtype.format().is_written());
        let first = floats.next().unwrap_or(DType::F32);
        let dtype = if floats.all(|dtype| dtype == first) { first } else { DType::F32 };
        Self { weights, dtype }
    }

    /// Tensors that are not floats stay as they are: no parameter takes them.
    fn converted(&self, tensor: Option<HostTensor>) -> Option<HostTensor> {
        tensor.map(|tensor| tensor.clone().stored_as(self.dtype).unwrap_or(tensor))
    }
}

impl Parameters for Stored<'_> {
    fn parameter(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self.converted(self.weights.parameter(name)?))
    }

    fn columns(&self, name: &str) -> Result<Option<HostTensor>, TensorSizeError> {
        Ok(self.converted(self.weights.columns(name)?))
    }

    fn backing(&self) -> Vec<Arc<dyn Backing>> {
        self.weights.backing()
    }
}
