use crate::closable::Closable;
use crate::options::options_of;
use crate::predictions::Predictions;
use crate::requests::request_of;
use crate::{errors, table};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyString, PyTuple};
use rewire::package::Package;
use rewire::rank::{self, Batch, Ranked};
use std::path::PathBuf;

/// A loaded ranking model. Any number of threads may rank with it at the same time.
#[pyclass(frozen, module = "rewire")]
pub struct Ranker(Closable<rank::Ranker>);

#[pymethods]
impl Ranker {
    #[new]
    #[pyo3(signature = (path, **options))]
    pub fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| rank::Ranker::load(&path, &options));
        loaded.map(Self::of).map_err(|error| errors::of_model(&error))
    }

    /// A model from the bytes of a package.
    #[staticmethod]
    #[pyo3(signature = (data, **options))]
    fn from_bytes(py: Python<'_>, data: Vec<u8>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| rank::Ranker::from_package(&Package::parse(data)?, &options));
        loaded.map(Self::of).map_err(|error| errors::of_model(&error))
    }

    /// Names of the tasks, in the order of logits.
    #[getter]
    fn tasks(&self) -> PyResult<Vec<String>> {
        Ok(tasks(&*self.0.get()?))
    }

    /// Name of the adapter that it uses, or `cpu`.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(device(&*self.0.get()?))
    }

    /// The features of requests: names by group.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ranker = self.0.get()?;
        let schema = ranker.schema();
        let names = |columns: &[rank::Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        let groups = PyDict::new(py);
        groups.set_item("contextual", names(&schema.contextual))?;
        groups.set_item("history", names(&schema.history))?;
        groups.set_item("candidates", names(&schema.candidates))?;
        Ok(groups)
    }

    /// A readable description of the model's inputs and outputs.
    fn describe(&self) -> PyResult<String> {
        Ok(self.0.get()?.describe().to_string())
    }

    /// Ranks the candidates of requests, best first.
    fn rank<'py>(&self, py: Python<'py>, requests: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let ranker = self.0.get()?;
        let mut batch = ranker.batch();
        let mut push = |request: &Bound<'py, PyAny>| match request.cast::<PyMapping>() {
            Ok(mapping) => {
                let request = request_of(ranker.schema(), mapping)?;
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
        let ranked = ranked(py, &ranker, &batch)?;
        let results = ranked.iter().map(|one| result(py, &ranker, one)).collect::<PyResult<Vec<_>>>()?;
        match (is_one, results.first()) {
            (true, Some(result)) => Ok(result.clone().into_any()),
            _ => Ok(PyList::new(py, results)?.into_any()),
        }
    }

    /// Scores all candidates of a table of requests.
    #[pyo3(signature = (table, *, index = None))]
    fn predict(&self, py: Python<'_>, table: &Bound<'_, PyAny>, index: Option<String>) -> PyResult<Predictions> {
        let (ranker, mut all) = (self.0.get()?, vec![]);
        table::each_batch(table, &ranker.batch(), |batch| {
            all.extend(ranked(py, &ranker, &batch)?);
            Ok(())
        })?;
        Ok(Predictions::of_ranked(&tasks(&ranker), all, index))
    }

    /// Frees the model. Later calls raise `ValueError`.
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
        match self.0.get() {
            Ok(ranker) => format!("<rewire.Ranker of {} on {}>", tasks(&ranker).join(", "), device(&ranker)),
            Err(_) => "<rewire.Ranker, closed>".to_owned(),
        }
    }
}

impl Ranker {
    fn of(ranker: rank::Ranker) -> Self {
        Self(Closable::new(ranker))
    }
}

fn tasks(ranker: &rank::Ranker) -> Vec<String> {
    ranker.tasks().iter().map(|task| task.name.clone()).collect()
}

fn device(ranker: &rank::Ranker) -> String {
    ranker.report().adapter.unwrap_or_else(|| "cpu".to_owned())
}

/// Releases the GIL.
fn ranked(py: Python<'_>, ranker: &rank::Ranker, batch: &Batch) -> PyResult<Vec<Ranked>> {
    py.detach(|| ranker.rank_batch(batch)).map_err(|error| errors::of_run(&error))
}

fn result<'py>(py: Python<'py>, ranker: &rank::Ranker, ranked: &Ranked) -> PyResult<Bound<'py, PyDict>> {
    let candidates = PyList::empty(py);
    for candidate in &ranked.candidates {
        let logits = PyDict::new(py);
        for (task, logit) in ranker.tasks().iter().zip(&candidate.logits) {
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
