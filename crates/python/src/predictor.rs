use crate::closable::Closable;
use crate::options::options_of;
use crate::predictions::Predictions;
use crate::ranker::Ranker;
use crate::{columns, errors, table};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};
use rewire::package::Package;
use rewire::predict::{self, Column, Predicted};
use rewire_arrow::OwnedTable;
use std::path::PathBuf;

/// A loaded imported model. Any number of threads may predict with it at the same time.
#[pyclass(frozen, module = "rewire")]
pub struct Predictor(Closable<predict::Predictor>);

#[pymethods]
impl Predictor {
    #[new]
    #[pyo3(signature = (path, **options))]
    pub fn new(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| predict::Predictor::load(&path, &options));
        loaded.map(Self::of).map_err(|error| errors::of_model(&error))
    }

    /// A model from the bytes of a package.
    #[staticmethod]
    #[pyo3(signature = (data, **options))]
    fn from_bytes(py: Python<'_>, data: Vec<u8>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = options_of(options)?;
        let loaded = py.detach(|| predict::Predictor::from_package(&Package::parse(data)?, &options));
        loaded.map(Self::of).map_err(|error| errors::of_model(&error))
    }

    /// Names of the columns that it reads.
    #[getter]
    fn columns(&self) -> PyResult<Vec<String>> {
        Ok(self.0.get()?.columns().to_vec())
    }

    /// Names of the output columns.
    #[getter]
    fn outputs(&self) -> PyResult<Vec<String>> {
        Ok(outputs(&*self.0.get()?))
    }

    /// Names of the output columns that hold lists.
    #[getter]
    fn list_outputs(&self) -> PyResult<Vec<String>> {
        let predictor = self.0.get()?;
        let lists = predictor.outputs().iter().filter(|output| output.is_list);
        Ok(lists.map(|output| output.name.clone()).collect())
    }

    /// The column that holds the items of each row, if every item has a prediction.
    #[getter]
    fn item(&self) -> PyResult<Option<String>> {
        Ok(self.0.get()?.item().map(|item| item.name.clone()))
    }

    /// Name of the adapter that it uses, or `cpu`.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(device(&*self.0.get()?))
    }

    /// A readable description of the model's inputs and outputs.
    fn describe(&self) -> PyResult<String> {
        Ok(self.0.get()?.describe().to_string())
    }

    /// The predictions of the rows of a table.
    #[pyo3(signature = (table, *, index = None))]
    fn predict(&self, py: Python<'_>, table: &Bound<'_, PyAny>, index: Option<String>) -> PyResult<Predictions> {
        let (predictor, mut all) = (self.0.get()?, None::<Predicted>);
        let mut predict = |rows: usize, columns: &[(&str, Column<'_>)]| {
            let predicted =
                py.detach(|| predictor.predict(rows, columns)).map_err(|error| errors::of_prediction(&error))?;
            match &mut all {
                Some(all) => all.append(predicted),
                None => all = Some(predicted),
            }
            Ok(())
        };
        match table.cast::<PyMapping>() {
            Ok(mapping) if !table::is_arrow(table)? => columns::with_columns(mapping, predictor.columns(), predict)?,
            _ => table::each_table(table, predictor.columns(), &mut predict)?,
        }
        let predicted = match all {
            Some(all) => all,
            None => Predicted { counts: vec![], columns: vec![predict::Lists::default(); predictor.outputs().len()] },
        };
        Ok(Predictions::new(OwnedTable::of_predicted(predictor.outputs(), predicted, index)))
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
            Ok(predictor) => {
                format!("<rewire.Predictor of {} on {}>", outputs(&predictor).join(", "), device(&predictor))
            }
            Err(_) => "<rewire.Predictor, closed>".to_owned(),
        }
    }
}

impl Predictor {
    fn of(predictor: predict::Predictor) -> Self {
        Self(Closable::new(predictor))
    }
}

fn outputs(predictor: &predict::Predictor) -> Vec<String> {
    predictor.outputs().iter().map(|output| output.name.clone()).collect()
}

fn device(predictor: &predict::Predictor) -> String {
    predictor.report().adapter.unwrap_or_else(|| "cpu".to_owned())
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
