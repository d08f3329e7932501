//! Requests from mappings of plain values, lists and arrays.

use crate::errors;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use rewire::rank::{Column, Request, Schema, User};
use std::collections::BTreeMap;

/// A request. Keys that the model does not read are ignored.
pub fn request_of(schema: &Schema, mapping: &Bound<'_, PyMapping>) -> PyResult<Request> {
    let user = item(mapping, "user")?.ok_or_else(|| errors::request("`user` is missing"))?;
    let mut request = Request::new(match user.extract::<i64>() {
        Ok(number) => User::Number(number),
        Err(_) => User::Name(user.extract().map_err(|_| unexpected(&user))?),
    });
    for Column { name, .. } in &schema.contextual {
        if let Some(value) = item(mapping, name)? {
            request.contextual.insert(name.clone(), value.extract().map_err(|_| unexpected(&value))?);
        }
    }
    request.history = lists(mapping, "history", &schema.history)?;
    request.candidates = lists(mapping, "candidates", &schema.candidates)?;
    request.labels = item(mapping, "labels")?.map(|labels| integers(&labels)).transpose()?;
    Ok(request)
}

fn item<'py>(mapping: &Bound<'py, PyMapping>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    if mapping.contains(name)? { mapping.get_item(name).map(Some) } else { Ok(None) }
}

fn lists(mapping: &Bound<'_, PyMapping>, group: &str, columns: &[Column]) -> PyResult<BTreeMap<String, Vec<i64>>> {
    let mut found = BTreeMap::new();
    let Some(given) = item(mapping, group)? else { return Ok(found) };
    let given = given.cast::<PyMapping>().map_err(|_| unexpected(&given))?;
    for Column { name, .. } in columns {
        if let Some(values) = item(given, name)? {
            found.insert(name.clone(), integers(&values)?);
        }
    }
    Ok(found)
}

/// Integers of a list, or of an array of numpy, pandas, polars or pyarrow.
fn integers(values: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    if let Ok(integers) = values.extract() {
        return Ok(integers);
    }
    for method in ["tolist", "to_list"] {
        if values.hasattr(method)? {
            return values.call_method0(method)?.extract().map_err(|_| unexpected(values));
        }
    }
    Err(unexpected(values))
}

fn unexpected(value: &Bound<'_, PyAny>) -> PyErr {
    match value.get_type().name() {
        Ok(found) => {
            PyTypeError::new_err(format!("a request holds `{found}`: expected integers, strings, lists or arrays"))
        }
        Err(error) => error,
    }
}
