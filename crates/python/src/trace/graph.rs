use crate::errors;
use pyo3::prelude::*;
use rewire::graph::{self, Seed, differentiate};

/// A traced model.
#[pyclass(frozen, module = "rewire")]
pub struct Graph(pub graph::Graph);

#[pymethods]
impl Graph {
    /// Names of the outputs.
    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.0.outputs().iter().map(|(name, _)| name.clone()).collect()
    }

    /// The same model with gradients of an output.
    #[pyo3(signature = (output, *, of))]
    fn differentiate(&self, output: &str, of: Vec<String>) -> PyResult<Self> {
        let wanted: Vec<&str> = of.iter().map(String::as_str).collect();
        let graph = differentiate(&self.0, &[(output, Seed::One)], &wanted);
        graph.map(Self).map_err(|error| errors::of_graph(&error))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Graph of {} with {} operators>", self.outputs().join(", "), self.0.len())
    }

    fn __str__(&self) -> String {
        self.0.text()
    }
}
