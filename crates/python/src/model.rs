use crate::closable::Closable;
use crate::options::options_of;
use crate::trace::Graph;
use crate::{arrays, errors};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};
use rewire::graph::{DType, HostTensor};
use rewire::program::{ModelFile, Program, stored};
use rewire::rank::RankOptions;
use rewire::runtime::{self, Inputs, ModelOptions, RunValue};
use rewire::weights::Weights;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A loaded model.
#[pyclass(frozen, module = "rewire")]
pub struct Model(Closable<Loaded>);

struct Loaded {
    model: runtime::Model,
    /// A model from a file, with its types and states.
    program: Option<Mutex<Program>>,
}

/// The parameters of a plan that a mapping contains.
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

impl Model {
    fn of_program(program: Program) -> Self {
        Self(Closable::new(Loaded { model: program.model().clone(), program: Some(Mutex::new(program)) }))
    }
}

fn device(model: &runtime::Model) -> String {
    model.report().adapter.unwrap_or_else(|| "cpu".to_owned())
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (graph, parameters = None, **options))]
    fn new(
        py: Python<'_>,
        graph: &Bound<'_, PyAny>,
        parameters: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = options_of(options)?;
        if let Ok(path) = graph.extract::<PathBuf>() {
            if parameters.is_some() {
                return Err(PyTypeError::new_err("a model of a file has its parameters"));
            }
            let loaded = py.detach(|| Program::load(&ModelFile::open(&path, options.mapping)?, &options));
            return loaded.map(Self::of_program).map_err(|error| errors::of_model(&error));
        }
        let graph: PyRef<'_, Graph> = graph.extract()?;
        let graph = &graph.0;
        let RankOptions { kernel, adapter, pipelines, kernel_rules, tables, refining, precision, .. } = options;
        let options =
            ModelOptions { kernel, adapter, pipelines, kernel_rules, tables, refining, ..ModelOptions::default() };
        let plan = py.detach(|| rewire::lower(&rewire::optimize(graph.clone())?.0));
        let plan = plan.map_err(|error| errors::of_graph(&error))?;
        let types = plan.parameters().map(|parameter| (parameter.name.to_owned(), parameter.dtype)).collect();
        let plan = stored(plan, precision).map_err(|error| errors::of_model(&error))?;
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
        let model = model.map_err(|error| errors::of_model(&error))?;
        Ok(Self(Closable::new(Loaded { model, program: None })))
    }

    /// A model from the bytes of a package, an archive of `torch.export.save` or an ONNX file.
    #[staticmethod]
    #[pyo3(signature = (data, **options))]
    fn from_bytes(py: Python<'_>, data: Vec<u8>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| Program::load(&ModelFile::parse(data)?, &options));
        loaded.map(Self::of_program).map_err(|error| errors::of_model(&error))
    }

    /// Runs a model from a file.
    fn run<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
        let loaded = self.0.get()?;
        let Some(program) = &loaded.program else {
            return Err(PyTypeError::new_err("a traced model runs in a session"));
        };
        let lock = || program.lock().unwrap_or_else(PoisonError::into_inner);
        let ports = py.detach(|| lock().inputs().to_vec());
        let (mut given, mut is_torch) = (BTreeMap::new(), false);
        for (name, value) in inputs.iter() {
            let name: String = name.extract()?;
            let port = ports.iter().find(|port| port.name == name);
            let (array, of_torch) = arrays::on_host(&value)?;
            is_torch |= of_torch;
            given.insert(name.clone(), arrays::typed(&name, &array, port.map(|port| port.ty))?);
        }
        let results = py.detach(|| lock().run(given)).map_err(|error| errors::of_run(&error))?;
        let named = PyDict::new(py);
        for (name, tensor) in results.tensors() {
            named.set_item(name, arrays::typed_array(py, &tensor, is_torch)?)?;
        }
        Ok(named)
    }

    /// Name of the adapter that it uses, or `cpu`.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(device(&self.0.get()?.model))
    }

    /// Names of its kernels, in their order.
    #[getter]
    fn kernels(&self) -> PyResult<Vec<String>> {
        Ok(self.0.get()?.model.plan().steps.iter().map(|step| step.name.clone()).collect())
    }

    /// Types of its parameters by name.
    #[getter]
    fn parameters(&self) -> PyResult<BTreeMap<String, &'static str>> {
        let loaded = self.0.get()?;
        Ok(loaded.model.plan().parameters().map(|one| (one.name.to_owned(), one.dtype.format().name)).collect())
    }

    /// Types of its inputs by name.
    #[getter]
    fn inputs(&self) -> PyResult<BTreeMap<String, &'static str>> {
        let loaded = self.0.get()?;
        Ok(loaded.model.plan().inputs().map(|one| (one.name.to_owned(), one.dtype.format().name)).collect())
    }

    fn session(&self) -> PyResult<Session> {
        Ok(Session(Mutex::new(self.0.get()?.model.session())))
    }

    /// Replaces parameters for all later runs.
    fn update(&self, py: Python<'_>, parameters: &Bound<'_, PyDict>) -> PyResult<()> {
        let model = &self.0.get()?.model;
        let types: BTreeMap<String, DType> =
            model.plan().parameters().map(|one| (one.name.to_owned(), one.dtype)).collect();
        let given: Vec<(String, HostTensor)> = parameters
            .iter()
            .map(|(name, value)| {
                let name: String = name.extract()?;
                let tensor = arrays::tensor(&name, &value, types.get(&name).copied())?;
                Ok((name, tensor))
            })
            .collect::<PyResult<_>>()?;
        py.detach(|| model.update(given)).map_err(|error| errors::of_model(&error))
    }

    /// Frees the model. Later calls raise `ValueError`; sessions keep it.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.0.close(py);
    }

    fn __repr__(&self) -> String {
        let Ok(loaded) = self.0.get() else { return "<rewire.Model, closed>".to_owned() };
        let inputs: Vec<&str> = loaded.model.plan().inputs().map(|input| input.name).collect();
        format!("<rewire.Model of {} on {}>", inputs.join(", "), device(&loaded.model))
    }
}

/// Runs a model for one caller at a time.
#[pyclass(frozen, module = "rewire")]
pub struct Session(Mutex<runtime::Session>);

impl Session {
    /// Uses the session with the GIL released.
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

    /// The value of a state.
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
