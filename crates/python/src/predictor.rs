use crate::options::options_of;
use crate::predictions::Predictions;
use crate::ranker::Ranker;
use crate::{columns, errors, table};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use rewire::package::Package;
use rewire::predict::{self, Column, Predicted};
use rewire_arrow::OwnedTable;
use std::path::PathBuf;

/// A loaded imported model. Any number of threads may predict with it at the same time.
#[pyclass(frozen, module = "rewire")]
pub struct Predictor(predict::Predictor);

#[pymethods]
impl Predictor {
    #[new]
    #[pyo3(signature = (path, **options))]
    pub fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        py.detach(|| predict::Predictor::load(&path, &options)).map(Self).map_err(|error| errors::of_model(&error))
    }

    /// A model from the bytes of a package.
    #[staticmethod]
    #[pyo3(signature = (data, **options))]
    fn from_bytes(py: Python<'_>, data: Vec<u8>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| predict::Predictor::from_package(&Package::parse(data)?, &options));
        loaded.map(Self).map_err(|error| errors::of_model(&error))
    }

    /// Names of the columns that it reads.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.columns().to_vec()
    }

    /// Names of the output columns.
    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.0.outputs().iter().map(|output| output.name.clone()).collect()
    }

    /// Names of the output columns that hold lists.
    #[getter]
    fn list_outputs(&self) -> Vec<String> {
        let lists = self.0.outputs().iter().filter(|output| output.is_list);
        lists.map(|output| output.name.clone()).collect()
    }

    /// The column that holds the items of each row, if every item has a prediction.
    #[getter]
    fn item(&self) -> Option<String> {
        self.0.item().map(|item| item.name.clone())
    }

    /// Name of the adapter that it uses, or `cpu`.
    #[getter]
    fn device(&self) -> String {
        self.0.report().adapter.unwrap_or_else(|| "cpu".to_owned())
    }

    /// Describes the model's inputs and outputs for people.
    fn describe(&self) -> String {
        self.0.describe().to_string()
    }

    /// The predictions of the rows of a table.
    #[pyo3(signature = (table, *, index = None))]
    fn predict(&self, py: Python<'_>, table: &Bound<'_, PyAny>, index: Option<String>) -> PyResult<Predictions> {
        let mut all: Option<Predicted> = None;
        let mut predict = |rows: usize, columns: &[(&str, Column<'_>)]| {
            let predicted =
                py.detach(|| self.0.predict(rows, columns)).map_err(|error| errors::of_prediction(&error))?;
            match &mut all {
                Some(all) => all.append(predicted),
                None => all = Some(predicted),
            }
            Ok(())
        };
        match table.cast::<PyMapping>() {
            Ok(mapping) if !table::is_arrow(table)? => columns::with_columns(mapping, self.0.columns(), predict)?,
            _ => table::each_table(table, self.0.columns(), &mut predict)?,
        }
        let predicted = match all {
            Some(all) => all,
            None => Predicted { counts: vec![], columns: vec![predict::Lists::default(); self.0.outputs().len()] },
        };
        Ok(Predictions::new(OwnedTable::of_predicted(self.0.outputs(), predicted, index)))
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Predictor of {} on {}>", self.outputs().join(", "), self.device())
    }
}

/// Loads the model of a folder or package, of either kind.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub fn load<'py>(py: Python<'py>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match predict::is_imported(&path) {
        true => Bound::new(py, Predictor::new(py, path, options)?)?.into_any(),
        false => Bound::new(py, Ranker::new(py, path, options)?)?.into_any(),
    })
}
