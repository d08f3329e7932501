//! Packages of models.

use crate::errors;
use crate::options::options_of;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rewire::program::ModelFile;
use rewire::rank::PackOptions;
use rewire::write_file;
use std::path::PathBuf;

/// Writes a model as a package.
#[pyfunction]
#[pyo3(signature = (model, out, **options))]
pub fn package(py: Python<'_>, model: PathBuf, out: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let options = options_of(options)?;
    let with = PackOptions { precision: options.precision, ..PackOptions::default() };
    let packed = py.detach(|| ModelFile::open(&model, options.mapping)?.pack(&with));
    let packed = packed.map_err(|error| errors::of_model(&error))?;
    let written = py.detach(|| write_file(&out, packed.bytes()));
    written.map_err(|error| PyOSError::new_err(format!("cannot write {}: {error}", out.display())))
}
