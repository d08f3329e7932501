use crate::ranker::{kernel_of, rules_of};
use crate::trace::Graph;
use crate::{arrays, errors};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use rewire::graph::{DType, HostTensor};
use rewire::runtime::{self, Inputs, ModelOptions, PipelineStore, RunValue};
use rewire::weights::Weights;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A traced model, ready to run.
#[pyclass(frozen, module = "rewire")]
pub struct Model(runtime::Model);

/// The parameters that a plan has, of a mapping.
fn given(parameters: &Bound<'_, PyAny>, types: &BTreeMap<String, DType>) -> PyResult<BTreeMap<String, HostTensor>> {
    let mapping = parameters.cast::<PyMapping>()?;
    let mut given = BTreeMap::new();
    for (name, dtype) in types {
        if mapping.contains(name)? {
            given.insert(name.clone(), arrays::tensor(name, &mapping.get_item(name)?, Some(*dtype))?);
        }
    }
    Ok(given)
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (graph, parameters = None, *, kernel = "auto", adapter = None, pipelines = None, kernel_for = None))]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        parameters: Option<&Bound<'_, PyAny>>,
        kernel: &str,
        adapter: Option<String>,
        pipelines: Option<PathBuf>,
        kernel_for: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let pipelines = pipelines.map(PipelineStore::at);
        let (kernel, kernel_rules) = (kernel_of(kernel)?, rules_of(kernel_for)?);
        let options = ModelOptions { kernel, adapter, pipelines, kernel_rules, ..ModelOptions::default() };
        let plan = py.detach(|| rewire::lower(&rewire::optimize(graph.0.clone())?.0));
        let plan = plan.map_err(|error| errors::of_graph(&error))?;
        let types = plan.parameters().map(|parameter| (parameter.name.to_owned(), parameter.dtype)).collect();
        let model = match parameters {
            None => py.detach(|| runtime::Model::load(plan, (), options)),
            Some(parameters) => match parameters.extract::<PathBuf>() {
                Ok(path) => {
                    let weights = py.detach(|| Weights::read(&path)).map_err(|error| errors::of_model(&error))?;
                    py.detach(|| runtime::Model::load(plan, &weights, options))
                }
                Err(_) => {
                    let given = given(parameters, &types)?;
                    py.detach(|| runtime::Model::load(plan, &given, options))
                }
            },
        };
        model.map(Self).map_err(|error| errors::of_model(&error))
    }

    /// Name of the adapter that it runs on, or `cpu`.
    #[getter]
    fn device(&self) -> String {
        self.0.report().adapter.unwrap_or_else(|| "cpu".to_owned())
    }

    /// Names of its kernels, in their order.
    #[getter]
    fn kernels(&self) -> Vec<String> {
        self.0.plan().steps.iter().map(|step| step.name.clone()).collect()
    }

    /// Types of its parameters by name.
    #[getter]
    fn parameters(&self) -> BTreeMap<String, &'static str> {
        self.0.plan().parameters().map(|one| (one.name.to_owned(), one.dtype.format().name)).collect()
    }

    /// Types of its inputs by name.
    #[getter]
    fn inputs(&self) -> BTreeMap<String, &'static str> {
        self.0.plan().inputs().map(|one| (one.name.to_owned(), one.dtype.format().name)).collect()
    }

    fn session(&self) -> Session {
        Session(Mutex::new(self.0.session()))
    }

    /// Replaces parameters for runs that begin from here on.
    fn update(&self, py: Python<'_>, parameters: &Bound<'_, PyDict>) -> PyResult<()> {
        let types: BTreeMap<String, DType> =
            self.0.plan().parameters().map(|one| (one.name.to_owned(), one.dtype)).collect();
        let given: Vec<(String, HostTensor)> = parameters
            .iter()
            .map(|(name, value)| {
                let name: String = name.extract()?;
                let tensor = arrays::tensor(&name, &value, types.get(&name).copied())?;
                Ok((name, tensor))
            })
            .collect::<PyResult<_>>()?;
        py.detach(|| self.0.update(given)).map_err(|error| errors::of_model(&error))
    }
}

/// What runs a model for one caller at a time.
#[pyclass(frozen, module = "rewire")]
pub struct Session(Mutex<runtime::Session>);

impl Session {
    /// Works with the session, while other threads of Python go on.
    fn work<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut runtime::Session) -> T + Send) -> T {
        py.detach(|| work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl Session {
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let types: BTreeMap<String, DType> = self
            .work(py, |session| session.plan().inputs().map(|input| (input.name.to_owned(), input.dtype)).collect());
        let mut given = Inputs::new();
        for (name, value) in inputs.iter() {
            let name: String = name.extract()?;
            let tensor = arrays::tensor(&name, &value, types.get(&name).copied())?;
            given.insert(name, tensor);
        }
        let outputs = self.work(py, |session| session.run(&given)).map_err(|error| errors::of_run(&error))?;
        let results = PyDict::new(py);
        for (name, value) in outputs.iter() {
            if let RunValue::Host(tensor) = value {
                results.set_item(name, arrays::array(py, tensor)?)?;
            }
        }
        Ok(results)
    }

    /// What a state holds.
    fn state<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let tensor = self.work(py, |session| session.state(name)).map_err(|error| errors::of_run(&error))?;
        arrays::array(py, &tensor)
    }

    /// Sets a state for the next run.
    fn set_state(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let dtype = self.work(py, |session| session.plan().states().get(name).map(|state| state.dtype));
        let tensor = arrays::tensor(name, value, dtype)?;
        self.work(py, |session| session.set_state(name, tensor)).map_err(|error| errors::of_run(&error))
    }
}
