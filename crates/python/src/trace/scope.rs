use super::extent::{ElementType, Extent, Size, dims};
use super::tensor::Traced;
use super::{Graph, Ragged, Tensor};
use crate::{arrays, errors};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rewire::graph::{self, Mode, Number};

/// A position in the module tree of a model during tracing.
#[pyclass(frozen, module = "rewire")]
pub struct Scope(graph::Scope);

#[pymethods]
impl Scope {
    #[new]
    #[pyo3(signature = (*, train = false))]
    fn new(train: bool) -> Self {
        let mode = if train { Mode::Train } else { Mode::Eval };
        Self(graph::Scope::new().without_places().with_mode(mode))
    }

    /// The module path, empty at top level.
    #[getter]
    fn path(&self) -> &str {
        self.0.path()
    }

    /// Calls `body` with the scope of the module `name` within this one, and returns its result.
    fn module<'py>(&self, py: Python<'py>, name: &str, body: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.0.module(name, |scope| body.call1((Bound::new(py, Self(scope.clone()))?,)))
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Scope {:?}>", self.path())
    }

    fn size(&self, name: &str) -> Size {
        Size(self.0.size(name))
    }

    fn input(&self, name: &str, dtype: ElementType, shape: Vec<Extent>) -> Traced {
        Traced(self.0.input(name, dtype.0, dims(shape)))
    }

    #[pyo3(signature = (name, shape, dtype = ElementType(graph::DType::F32)))]
    fn parameter(&self, name: &str, shape: Vec<Extent>, dtype: ElementType) -> Traced {
        Traced(self.0.parameter(name, dtype.0, dims(shape)))
    }

    /// A value that a session keeps from run to run.
    fn state(&self, name: &str, dtype: ElementType, shape: Vec<Extent>) -> Traced {
        Traced(self.0.state(name, dtype.0, dims(shape)))
    }

    /// Sets the value of a state after a run.
    fn set_state(&self, name: &str, value: &Tensor) {
        self.0.set_state(name, &value.0);
    }

    /// Lengths of sequences, an input of a run.
    fn lengths(&self, name: &str, batch: Extent) -> Ragged {
        Ragged(self.0.lengths(name, batch.0))
    }

    /// Samples of equal length.
    fn dense(&self, batch: Extent, length: u32) -> Ragged {
        Ragged(graph::Ragged::dense(&self.0, batch.0, &self.0.host_size(length as usize)))
    }

    /// An array that is a constant of the graph.
    #[pyo3(signature = (values, dtype = None))]
    fn constant(&self, values: &Bound<'_, PyAny>, dtype: Option<ElementType>) -> PyResult<Traced> {
        Ok(Traced(self.0.constant(arrays::tensor("values", values, dtype.map(|dtype| dtype.0))?)))
    }

    fn concat(&self, parts: Vec<PyRef<'_, Tensor>>, axis: i32) -> Traced {
        let parts: Vec<&graph::Tensor> = parts.iter().map(|part| &part.0).collect();
        Traced(self.0.concat(&parts, axis))
    }

    fn stack(&self, parts: Vec<PyRef<'_, Tensor>>, axis: i32) -> Traced {
        let parts: Vec<&graph::Tensor> = parts.iter().map(|part| &part.0).collect();
        Traced(self.0.stack(&parts, axis))
    }

    /// The largest values of every row, and their columns.
    fn top_k(&self, x: &Tensor, k: usize) -> (Traced, Traced) {
        let (values, columns) = self.0.top_k(&x.0, k);
        (Traced(values), Traced(columns))
    }

    /// The largest values of every row, excluding some columns, and their columns.
    fn top_k_unseen(&self, x: &Tensor, k: usize, seen: &Tensor, rows: &Ragged) -> (Traced, Traced) {
        let (values, columns) = self.0.top_k_unseen(&x.0, k, &seen.0, &rows.0);
        (Traced(values), Traced(columns))
    }

    fn dropout(&self, x: &Tensor, ratio: f32) -> Traced {
        Traced(self.0.dropout(&x.0, ratio))
    }

    /// The graph, or the first error.
    fn finish(&self, outputs: &Bound<'_, PyDict>) -> PyResult<Graph> {
        let outputs: Vec<(String, PyRef<'_, Tensor>)> =
            outputs.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?))).collect::<PyResult<_>>()?;
        let outputs: Vec<(&str, graph::Tensor)> =
            outputs.iter().map(|(name, value)| (name.as_str(), value.0.clone())).collect();
        self.0.clone().finish(&outputs).map(Graph).map_err(|error| errors::of_graph(&error))
    }
}

/// Converts a number for operators: Python integers stay integers.
#[derive(FromPyObject)]
pub enum Constant {
    Whole(i64),
    Float(f64),
}

impl From<Constant> for Number {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Whole(value) => value.into(),
            Constant::Float(value) => value.into(),
        }
    }
}
