//! Losses and metrics of imported models.

use crate::options::options_of;
use crate::{columns, errors};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rewire::predict::{self, Evaluated, Negatives};
use rewire::weights::Weights;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Evaluates an imported model: the losses and metrics of its configuration, with the reference's names.
#[pyclass(frozen, module = "rewire")]
pub struct Evaluator {
    evaluator: predict::Evaluator,
    weights: Weights<'static>,
}

#[pymethods]
impl Evaluator {
    #[new]
    #[pyo3(signature = (path, **options))]
    fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| predict::Evaluator::load(&path, &options));
        let (evaluator, weights) = loaded.map_err(|error| errors::of_model(&error))?;
        Ok(Self { evaluator, weights })
    }

    /// Names of the columns that it reads.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.evaluator.columns().to_vec()
    }

    /// Names of the columns of sampled items that it reads.
    #[getter]
    fn negatives(&self) -> Vec<String> {
        self.evaluator.negatives().to_vec()
    }

    /// Names of the metrics.
    #[getter]
    fn metrics(&self) -> Vec<String> {
        self.evaluator.metrics().map(str::to_owned).collect()
    }

    /// Batch size in rows, from the configuration.
    #[getter]
    fn batch_size(&self) -> usize {
        self.evaluator.batch_size()
    }

    /// An evaluation without batches.
    fn begin(&self, py: Python<'_>) -> PyResult<Evaluation> {
        let evaluation = py.detach(|| self.evaluator.begin(&self.weights));
        let evaluation = evaluation.map_err(|error| errors::of_model(&error))?;
        Ok(Evaluation { evaluator: self.evaluator.clone(), evaluation: Mutex::new(evaluation) })
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Evaluator of {}>", self.metrics().join(", "))
    }
}

/// An evaluation, batch by batch.
#[pyclass(frozen, module = "rewire")]
pub struct Evaluation {
    evaluator: predict::Evaluator,
    evaluation: Mutex<predict::Evaluation>,
}

#[pymethods]
impl Evaluation {
    /// Name of the adapter that it uses, or `cpu`.
    #[getter]
    fn device(&self) -> String {
        self.locked().report().adapter.unwrap_or_else(|| "cpu".to_owned())
    }

    /// Adds a batch and returns its losses.
    #[pyo3(signature = (batch, *, negatives = None))]
    fn add(
        &self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        negatives: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<BTreeMap<String, f64>> {
        let add = |negatives: Option<Negatives<'_>>| {
            columns::of_batch(batch, self.evaluator.columns(), |rows, columns| {
                let added = py.detach(|| self.locked().add(rows, columns, negatives));
                added.map_err(|error| errors::of_prediction(&error))
            })
        };
        let losses = match negatives {
            None => add(None),
            Some(table) => columns::of_batch(table, self.evaluator.negatives(), |_, columns| {
                add(Some(Negatives { columns, row: 0 }))
            }),
        };
        Ok(losses?.into_iter().collect())
    }

    /// Losses and metrics of all batches.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Evaluated { metrics, losses, rows } = py.detach(|| self.locked().evaluated());
        let result = PyDict::new(py);
        for (kind, values) in [("metrics", metrics), ("losses", losses)] {
            let all = PyDict::new(py);
            values.into_iter().try_for_each(|(name, value)| all.set_item(name, value))?;
            result.set_item(kind, all)?;
        }
        result.set_item("rows", rows)?;
        Ok(result)
    }
}

impl Evaluation {
    fn locked(&self) -> MutexGuard<'_, predict::Evaluation> {
        self.evaluation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
