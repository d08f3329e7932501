use crate::arrays;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use rewire::graph::HostTensor;
use rewire::rank::{Ranked, RankedColumns, User};
use rewire_arrow::{OwnedTable, OwnedValues, rows_of};
use std::sync::Arc;

/// Scores of candidates or predictions of rows, one row each: a table for consumers of `__arrow_c_array__`, and numpy arrays by name.
#[pyclass(frozen, module = "rewire")]
pub struct Predictions(Arc<OwnedTable>);

/// One user per row: numbers if all are.
fn users<'a>(rows: impl Iterator<Item = (&'a User, usize)> + Clone) -> OwnedValues {
    let repeated = || rows.clone().flat_map(|(user, count)| std::iter::repeat_n(user, count));
    let number = |user: &User| if let User::Number(number) = user { Some(*number) } else { None };
    if let Some(numbers) = repeated().map(number).collect() {
        return OwnedValues::I64(numbers);
    }
    let (mut offsets, mut text) = (vec![0], String::new());
    for user in repeated() {
        text.push_str(&user.to_string());
        offsets.push(text.len() as i64);
    }
    OwnedValues::Text { offsets, text }
}

impl Predictions {
    pub fn new(table: OwnedTable) -> Self {
        Self(Arc::new(table))
    }

    /// The candidates of requests in their order. `index` names a column with the row number of each candidate's request.
    pub fn of_ranked(tasks: &[String], mut ranked: Vec<Ranked>, index: Option<String>) -> Self {
        ranked.iter_mut().for_each(|one| one.candidates.sort_by_key(|candidate| candidate.position));
        let counts: Vec<usize> = ranked.iter().map(|one| one.candidates.len()).collect();
        let RankedColumns { users: names, items, scores, logits, .. } = ranked.into_iter().collect();
        let of_task = |task: usize| logits.iter().copied().skip(task).step_by(tasks.len()).collect();
        let rows = items.len();
        let mut columns = vec![
            ("user".to_owned(), users(names.iter().zip(counts.iter().copied()))),
            ("item".to_owned(), OwnedValues::I64(items)),
            ("score".to_owned(), OwnedValues::F64(scores)),
        ];
        let logits = tasks.iter().enumerate();
        columns.extend(logits.map(|(task, name)| (format!("logit_{name}"), OwnedValues::F32(of_task(task)))));
        columns.extend(index.map(|name| (name, OwnedValues::I64(rows_of(&counts)))));
        Self::new(OwnedTable { rows, columns })
    }
}

/// Numbers as a numpy array.
fn array<'py>(py: Python<'py>, values: &[f32], shape: Vec<usize>) -> PyResult<Bound<'py, PyAny>> {
    let tensor = HostTensor::f32(shape, values);
    arrays::array(py, &tensor.map_err(|error| PyKeyError::new_err(error.to_string()))?)
}

/// Lists as one array if they have equal lengths, otherwise as a list of arrays.
fn lists<'py>(py: Python<'py>, offsets: &[i64], values: &[f32]) -> PyResult<Bound<'py, PyAny>> {
    let ranges = offsets.windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
    let width = ranges.clone().next().map_or(0, |range| range.len());
    if ranges.clone().all(|range| range.len() == width) {
        return array(py, values, vec![ranges.len(), width]);
    }
    let rows = ranges.map(|range| array(py, &values[range.clone()], vec![range.len()]));
    Ok(PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?.into_any())
}

#[pymethods]
impl Predictions {
    fn __len__(&self) -> usize {
        self.0.rows
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Predictions of {} rows>", self.0.rows)
    }

    /// Names of the columns.
    fn keys(&self) -> Vec<String> {
        self.0.columns.iter().map(|(name, _)| name.clone()).collect()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let column = self.0.columns.iter().find(|(known, _)| known == name);
        let (_, values) = column.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        let numpy = |values: Bound<'py, PyAny>, dtype: &str| py.import("numpy")?.call_method1("array", (values, dtype));
        match values {
            OwnedValues::I64(values) => numpy(PyList::new(py, values)?.into_any(), "int64"),
            OwnedValues::F32(values) => array(py, values, vec![values.len()]),
            OwnedValues::F64(values) => numpy(PyList::new(py, values)?.into_any(), "float64"),
            OwnedValues::Text { offsets, text } => {
                let texts = offsets.windows(2).map(|ends| &text[ends[0] as usize..ends[1] as usize]);
                numpy(PyList::new(py, texts)?.into_any(), "object")
            }
            OwnedValues::Lists { offsets, values } => lists(py, offsets, values),
        }
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, self.0.export().0, c"arrow_schema")
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A producer may ignore a request for other types.
        let _ = requested_schema;
        let (schema, array) = self.0.export();
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}
