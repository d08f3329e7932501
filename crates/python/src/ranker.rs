use crate::options::options_of;
use crate::predictions::Predictions;
use crate::requests::request_of;
use crate::{errors, table};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString};
use rewire::package::Package;
use rewire::rank::{self, Batch, Ranked};
use std::path::PathBuf;

/// A loaded ranking model. Any number of threads may rank with it at the same time.
#[pyclass(frozen, module = "rewire")]
pub struct Ranker(rank::Ranker);

#[pymethods]
impl Ranker {
    #[new]
    #[pyo3(signature = (path, **options))]
    pub fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        py.detach(|| rank::Ranker::load(&path, &options)).map(Self).map_err(|error| errors::of_model(&error))
    }

    /// A model from the bytes of a package.
    #[staticmethod]
    #[pyo3(signature = (data, **options))]
    fn from_bytes(py: Python<'_>, data: Vec<u8>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| rank::Ranker::from_package(&Package::parse(data)?, &options));
        loaded.map(Self).map_err(|error| errors::of_model(&error))
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
        let mut batch = self.0.batch();
        let mut push = |request: &Bound<'py, PyAny>| match request.cast::<PyMapping>() {
            Ok(mapping) => {
                let request = request_of(self.0.schema(), mapping)?;
                batch.push(&request).map_err(|error| errors::of_request(&error))
            }
            Err(_) => {
                let text: String = request.extract()?;
                batch.push_json(text.as_bytes()).map_err(|error| errors::of_request(&error))
            }
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
