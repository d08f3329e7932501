use super::tensor::Traced;
use super::{Tensor, extent};
use pyo3::prelude::*;
use rewire::graph;

/// The division of rows into samples.
#[pyclass(frozen, module = "rewire")]
pub struct Ragged(pub graph::Ragged);

#[pymethods]
impl Ragged {
    /// Number of samples.
    #[getter]
    fn batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        extent::object(py, &self.0.batch)
    }

    /// Number of rows of all samples.
    #[getter]
    fn total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        extent::object(py, &self.0.total)
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Ragged of {} rows of {}>", self.0.total, self.0.batch)
    }

    /// The position of every row within its sample.
    #[getter]
    fn position(&self) -> Traced {
        Traced(self.0.position())
    }

    /// The sum of both lengths in every sample.
    fn plus(&self, other: &Self) -> Self {
        Self(self.0.plus(&other.0))
    }

    /// The position of the query of a pair in its sample.
    fn row_index(&self, keys: &Self, heads: usize) -> Traced {
        Traced(self.0.row_index(&keys.0, heads))
    }

    /// The position of the key of a pair in its sample.
    fn key_index(&self, keys: &Self, heads: usize) -> Traced {
        Traced(self.0.key_index(&keys.0, heads))
    }

    /// One value per row, for every pair of the row.
    fn per_row(&self, keys: &Self, heads: usize, values: &Tensor) -> Traced {
        Traced(self.0.per_row(&keys.0, heads, &values.0))
    }

    /// One value per key, for every pair of the key.
    fn per_key(&self, keys: &Self, heads: usize, values: &Tensor) -> Traced {
        Traced(self.0.per_key(&keys.0, heads, &values.0))
    }
}
