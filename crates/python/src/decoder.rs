use crate::closable::Closable;
use crate::errors;
use crate::options::options_of;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rewire::generate::decoder;
use rewire::generate::{Found, GenerateError, Sampling};
use rewire::package::Package;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A language model, ready to generate.
#[pyclass(frozen, module = "rewire")]
pub struct Decoder(Closable<Mutex<decoder::Decoder>>);

#[pymethods]
impl Decoder {
    #[new]
    #[pyo3(signature = (path, **options))]
    fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let opened = py.detach(|| decoder::Decoder::open(&path, &options));
        opened.map(|decoder| Self(Closable::new(Mutex::new(decoder)))).map_err(|error| errors::of_model(&error))
    }

    /// A model from the bytes of a package.
    #[staticmethod]
    #[pyo3(signature = (data, **options))]
    fn from_bytes(py: Python<'_>, data: Vec<u8>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let package = py.detach(|| Package::parse(data)).map_err(|error| errors::of_model(&error))?;
        let opened = py.detach(|| decoder::Decoder::from_package(&package, &options));
        opened.map(|decoder| Self(Closable::new(Mutex::new(decoder)))).map_err(|error| errors::of_model(&error))
    }

    /// Number of tokens of the vocabulary.
    #[getter]
    fn vocab_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |decoder| decoder.config().vocabulary())
    }

    /// Name of the adapter that it runs on, or `cpu`.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.with(py, |decoder| decoder.report().adapter)?.unwrap_or_else(|| "cpu".to_owned()))
    }

    /// The items of prompts, or sampled tokens that follow them.
    #[pyo3(signature = (prompts, *, items = None, num_beams = 10, max_new_tokens = 32, temperature = 0.0, top_k = None,
                        top_p = 1.0, seed = 0, stop = vec![], on_token = None))]
    #[allow(clippy::too_many_arguments, reason = "they are named")]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompts: Vec<Vec<u32>>,
        items: Option<Vec<Vec<u32>>>,
        num_beams: usize,
        max_new_tokens: usize,
        temperature: f64,
        top_k: Option<usize>,
        top_p: f64,
        seed: u64,
        stop: Vec<u32>,
        on_token: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let sampling = Sampling { tokens: max_new_tokens, temperature, top_k, top_p, seed, stop };
        let mut raised = None;
        let found = self.with(py, |decoder| {
            let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
            decoder.answer(&prompts, (items, num_beams), sampling, |prompt, tokens| match (&raised, &on_token) {
                (Some(_), _) => ControlFlow::Break(()),
                (None, None) => ControlFlow::Continue(()),
                (None, Some(on_token)) => match told(on_token, prompt, tokens) {
                    Ok(true) => ControlFlow::Continue(()),
                    Ok(false) => ControlFlow::Break(()),
                    Err(error) => {
                        raised = Some(error);
                        ControlFlow::Break(())
                    }
                },
            })
        })?;
        if let Some(error) = raised {
            return Err(error);
        }
        let found = found.map_err(|error: GenerateError| errors::of_run(&error))?;
        let lists = found.iter().map(|found| {
            let entries = found.iter().map(|one| entry(py, one)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, entries)
        });
        PyList::new(py, lists.collect::<PyResult<Vec<_>>>()?)
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

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.device(py) {
            Ok(device) => format!("<rewire.Decoder on {device}>"),
            Err(_) => "<rewire.Decoder, closed>".to_owned(),
        }
    }
}

impl Decoder {
    /// Other Python threads run during the call.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut decoder::Decoder) -> T + Send) -> PyResult<T> {
        let decoder = self.0.get()?;
        Ok(py.detach(|| work(&mut decoder.lock().unwrap_or_else(PoisonError::into_inner))))
    }
}

/// Calls a Python function after a token. The request ends if it returns `False`.
fn told(on_token: &Py<PyAny>, prompt: usize, tokens: &[u32]) -> PyResult<bool> {
    Python::attach(|py| {
        let answer = on_token.call1(py, (prompt, tokens.to_vec()))?;
        Ok(answer.is_none(py) || answer.is_truthy(py)?)
    })
}

fn entry<'py>(py: Python<'py>, found: &Found) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("tokens", &found.codes)?;
    entry.set_item("score", found.score)?;
    entry.set_item("items", &found.items)?;
    Ok(entry)
}
