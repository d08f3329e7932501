use crate::predictions::Predictions;
use crate::{errors, table};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyMapping, PyString};
use rewire::Mapping;
use rewire::rank::{self, Batch, RankOptions, Ranked};
use rewire::runtime::{Kernel, KernelRule, PipelineStore};
use std::path::PathBuf;

/// Parses the name of a kernel backend.
pub fn kernel_of(name: &str) -> PyResult<Kernel> {
    name.parse().map_err(|error| PyValueError::new_err(format!("kernel: {error}")))
}

/// Parses the name of a mapping mode.
pub fn mapping_of(name: &str) -> PyResult<Mapping> {
    name.parse().map_err(|error: rewire::runtime::ParseMappingError| PyValueError::new_err(error.to_string()))
}

/// Kernel backends by patterns of operators and modules.
pub fn rules_of(kernel_for: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<KernelRule>> {
    let rule = |(pattern, kernel): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        Ok(KernelRule { pattern: pattern.extract()?, kernel: kernel_of(&kernel.extract::<String>()?)? })
    };
    kernel_for.into_iter().flatten().map(rule).collect()
}

/// The loading options of a model.
pub fn options_of(
    kernel: &str,
    adapter: Option<String>,
    pipelines: Option<PathBuf>,
    mapping: &str,
    kernel_for: Option<&Bound<'_, PyDict>>,
) -> PyResult<RankOptions> {
    let (kernel, mapping, pipelines) = (kernel_of(kernel)?, mapping_of(mapping)?, pipelines.map(PipelineStore::at));
    let kernel_rules = rules_of(kernel_for)?;
    Ok(RankOptions { kernel, adapter, pipelines, mapping, kernel_rules, ..RankOptions::default() })
}

/// Converts values of numpy, pandas, polars and pyarrow, which `json` does not support, to lists and numbers.
#[pyfunction]
fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    for method in ["tolist", "to_list"] {
        if value.hasattr(method)? {
            return value.call_method0(method);
        }
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("a request holds `{found}`: expected integers, strings, lists or arrays")))
}

/// A loaded ranking model. Any number of threads may rank with it at the same time.
#[pyclass(frozen, module = "rewire")]
pub struct Ranker(rank::Ranker);

#[pymethods]
impl Ranker {
    #[new]
    #[pyo3(signature = (path, *, kernel = "auto", adapter = None, pipelines = None, mapping = "large", kernel_for = None))]
    pub fn new(
        py: Python<'_>,
        path: PathBuf,
        kernel: &str,
        adapter: Option<String>,
        pipelines: Option<PathBuf>,
        mapping: &str,
        kernel_for: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = options_of(kernel, adapter, pipelines, mapping, kernel_for)?;
        py.detach(|| rank::Ranker::load(&path, &options)).map(Self).map_err(|error| errors::of_model(&error))
    }

    /// Names of the tasks, in the order of logits.
    #[getter]
    fn tasks(&self) -> Vec<String> {
        self.0.tasks().iter().map(|task| task.name.clone()).collect()
    }

    /// Name of the adapter that it uses, or `cpu`.
    #[getter]
    fn device(&self) -> String {
        self.0.report().adapter.unwrap_or_else(|| "cpu".to_owned())
    }

    /// The features of requests: names by group.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let schema = self.0.schema();
        let names = |columns: &[rank::Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        let groups = PyDict::new(py);
        groups.set_item("contextual", names(&schema.contextual))?;
        groups.set_item("history", names(&schema.history))?;
        groups.set_item("candidates", names(&schema.candidates))?;
        Ok(groups)
    }

    /// Describes the model's inputs and outputs for people.
    fn describe(&self) -> String {
        self.0.describe().to_string()
    }

    /// Ranks the candidates of requests, best first.
    fn rank<'py>(&self, py: Python<'py>, requests: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let dumps = py.import("json")?.getattr("dumps")?;
        let options = [("default", wrap_pyfunction!(plain, py)?)].into_py_dict(py)?;
        let mut batch = self.0.batch();
        let mut push = |request: &Bound<'py, PyAny>| {
            let text: String = match request.cast::<PyString>() {
                Ok(text) => text.extract()?,
                Err(_) => dumps.call((request,), Some(&options))?.extract()?,
            };
            batch.push_json(text.as_bytes()).map_err(|error| errors::of_request(&error))
        };
        let is_one = requests.cast::<PyMapping>().is_ok() || requests.cast::<PyString>().is_ok();
        if is_one {
            push(requests)?;
        } else {
            for request in requests.try_iter()? {
                push(&request?)?;
            }
        }
        let ranked = self.ranked(py, &batch)?;
        let results = ranked.iter().map(|one| self.result(py, one)).collect::<PyResult<Vec<_>>>()?;
        match (is_one, results.first()) {
            (true, Some(result)) => Ok(result.clone().into_any()),
            _ => Ok(PyList::new(py, results)?.into_any()),
        }
    }

    /// Scores all candidates of a table of requests.
    #[pyo3(signature = (table, *, index = None))]
    fn predict(&self, py: Python<'_>, table: &Bound<'_, PyAny>, index: Option<String>) -> PyResult<Predictions> {
        let mut all = vec![];
        table::each_batch(table, &self.0.batch(), |batch| {
            all.extend(self.ranked(py, &batch)?);
            Ok(())
        })?;
        Ok(Predictions::of_ranked(&self.tasks(), all, index))
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Ranker of {} on {}>", self.tasks().join(", "), self.device())
    }
}

impl Ranker {
    /// Releases the GIL.
    fn ranked(&self, py: Python<'_>, batch: &Batch) -> PyResult<Vec<Ranked>> {
        py.detach(|| self.0.rank_batch(batch)).map_err(|error| errors::of_run(&error))
    }

    fn result<'py>(&self, py: Python<'py>, ranked: &Ranked) -> PyResult<Bound<'py, PyDict>> {
        let candidates = PyList::empty(py);
        for candidate in &ranked.candidates {
            let logits = PyDict::new(py);
            for (task, logit) in self.0.tasks().iter().zip(&candidate.logits) {
                logits.set_item(&task.name, *logit)?;
            }
            let entry = PyDict::new(py);
            entry.set_item("item", candidate.item)?;
            entry.set_item("position", candidate.position)?;
            entry.set_item("score", candidate.score)?;
            entry.set_item("logits", logits)?;
            candidates.append(entry)?;
        }
        let result = PyDict::new(py);
        match &ranked.user {
            rank::User::Name(name) => result.set_item("user", name)?,
            rank::User::Number(number) => result.set_item("user", number)?,
        }
        result.set_item("candidates", candidates)?;
        result.set_item("dropped_events", ranked.dropped_events)?;
        Ok(result)
    }
}
