//! Loading options, the keyword arguments of every class of models.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rewire::Mapping;
use rewire::graph::DType;
use rewire::rank::{Precision, RankOptions};
use rewire::runtime::{Kernel, KernelRule, PipelineStore};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

/// Storage types of floats, with the names of the program.
const STORED: [(&str, DType); 6] = [
    ("f32", DType::F32),
    ("f16", DType::F16),
    ("bf16", DType::BF16),
    ("int8", DType::Rows8),
    ("int4", DType::Rows4),
    ("int2", DType::Rows2),
];

fn parsed<T: FromStr<Err: Display>>(text: &str, argument: &str) -> PyResult<T> {
    text.parse().map_err(|error| PyValueError::new_err(format!("{argument}: {error}")))
}

/// Parses the name of a kernel backend.
pub fn kernel_of(name: &str) -> PyResult<Kernel> {
    parsed(name, "kernel")
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

fn storage(name: &str, argument: &str) -> PyResult<DType> {
    let known = STORED.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype);
    known.ok_or_else(|| {
        let names = STORED.map(|(name, _)| name).join(", ");
        PyValueError::new_err(format!("{argument}: expected one of {names}, got `{name}`"))
    })
}

/// The loading options of a model.
pub fn options_of(given: Option<&Bound<'_, PyDict>>) -> PyResult<RankOptions> {
    let mut options = RankOptions::default();
    let mut precision = Precision::default();
    for (name, value) in given.into_iter().flatten().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        let text = || value.extract::<String>();
        match name.as_str() {
            "kernel" => options.kernel = kernel_of(&text()?)?,
            "adapter" => options.adapter = Some(text()?),
            "pipelines" => options.pipelines = Some(PipelineStore::at(value.extract::<PathBuf>()?)),
            "mapping" => options.mapping = mapping_of(&text()?)?,
            "kernel_for" => options.kernel_rules = rules_of(Some(value.cast::<PyDict>()?))?,
            "dtype" => precision.weights = Some(storage(&text()?, &name)?),
            "tables" => precision.tables = Some(storage(&text()?, &name)?),
            "activations" => precision.activations = Some(storage(&text()?, &name)?),
            "table_placement" => options.tables = parsed(&text()?, &name)?,
            "refining" => options.refining = parsed(&text()?, &name)?,
            other => return Err(PyTypeError::new_err(format!("there is no option `{other}`"))),
        }
    }
    options.precision = Precision { tables: precision.tables.or(precision.weights), ..precision };
    Ok(options)
}
