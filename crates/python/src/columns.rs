//! Columns of imported models: numpy and Arrow arrays, and Python lists.

use crate::{errors, table};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use rewire::predict::{Column, Data, Offsets, OwnedCell, rows_of};

/// Maximum nesting of lists.
const DEPTH: usize = 4;

/// Calls `work` with the named columns of a mapping, and their number of rows. Missing names are left out.
pub fn with_columns<T>(
    columns: &Bound<'_, PyMapping>,
    names: &[String],
    work: impl FnOnce(usize, &[(&str, Column<'_>)]) -> PyResult<T>,
) -> PyResult<T> {
    let mut exported = vec![];
    for name in names {
        if columns.contains(name)? {
            exported.push((name.as_str(), Exported::of(name, &columns.get_item(name)?)?));
        }
    }
    let all = exported.iter().map(|(name, own)| Ok((*name, own.column(name)?))).collect::<PyResult<Vec<_>>>()?;
    work(rows_of(&all).map_err(|error| errors::of_request(&error))?, &all)
}

/// Calls `work` with the named columns of a batch, a mapping or an Arrow table, and their number of rows.
pub fn of_batch<T>(
    batch: &Bound<'_, PyAny>,
    names: &[String],
    work: impl FnOnce(usize, &[(&str, Column<'_>)]) -> PyResult<T>,
) -> PyResult<T> {
    match batch.cast::<PyMapping>() {
        Ok(mapping) if !table::is_arrow(batch)? => return with_columns(mapping, names, work),
        _ => {}
    }
    let (mut work, mut result) = (Some(work), None);
    table::each_table(batch, names, |rows, columns| {
        let work = work
            .take()
            .ok_or_else(|| errors::request("expected a batch, got a table of several: combine its chunks"))?;
        result = Some(work(rows, columns)?);
        Ok(())
    })?;
    result.ok_or_else(|| errors::request("expected a batch, got a table without rows"))
}

/// A column with the owner of its memory.
enum Exported<'py> {
    Own(Column<'static>),
    Arrow(table::Exported<'py>),
}

impl<'py> Exported<'py> {
    fn of(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if value.hasattr("__arrow_c_array__")? || value.hasattr("combine_chunks")? {
            // pyarrow.ChunkedArray has chunks, which Arrow's interface for a single array lacks.
            let one =
                if value.hasattr("combine_chunks")? { value.call_method0("combine_chunks")? } else { value.clone() };
            return Ok(Self::Arrow(table::Exported::of(&one)?));
        }
        if value.hasattr("to_arrow")? {
            return Self::of(name, &value.call_method0("to_arrow")?);
        }
        if value.hasattr("__array__")? {
            let array = value.py().import("numpy")?.call_method1("asarray", (value,))?;
            if let Some(column) = of_numpy(name, &array)? {
                return Ok(Self::Own(column));
            }
        }
        let cells = value.try_iter()?.map(|cell| of_object(name, &cell?, 0)).collect::<PyResult<Vec<_>>>()?;
        Column::of_cells(cells).map(Self::Own).map_err(|mixed| errors::request(&format!("column `{name}`: {mixed}")))
    }

    fn column<'a>(&'a self, name: &'a str) -> PyResult<Column<'a>> {
        match self {
            Self::Own(column) => Ok(column.clone()),
            Self::Arrow(exported) => exported.column(name),
        }
    }
}

/// The column of a numeric array; with two axes, one list per row. `None` for an array of objects.
fn of_numpy(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Option<Column<'static>>> {
    let dtype = array.getattr("dtype")?;
    let kind: String = dtype.getattr("kind")?.extract()?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let numpy = array.py().import("numpy")?;
    let flat = |to: &str| numpy.call_method1("ascontiguousarray", (array, to))?.call_method1("reshape", (-1,));
    let py = array.py();
    let data = match kind.as_str() {
        "i" | "u" | "b" => Data::I64(PyBuffer::<i64>::get(&flat("int64")?)?.to_vec(py)?.into()),
        "f" if dtype.getattr("itemsize")?.extract::<usize>()? <= 4 => {
            Data::F32(PyBuffer::<f32>::get(&flat("float32")?)?.to_vec(py)?.into())
        }
        "f" => Data::F64(PyBuffer::<f64>::get(&flat("float64")?)?.to_vec(py)?.into()),
        _ => return Ok(None),
    };
    let (Some((&rows, inner)), values) = (shape.split_first(), Column::new(data)) else {
        return Err(errors::request(&format!(
            "column `{name}`: expected one value per row, got an array without axes"
        )));
    };
    let lists = |(items, rows): (Column<'static>, usize), &width: &usize| {
        let offsets: Vec<i64> = (0..=rows).map(|row| (row * width) as i64).collect();
        (Column::new(Data::List { offsets: Offsets::I64(offsets.into()), items: Box::new(items) }), rows)
    };
    Ok(Some(match inner {
        [] => values,
        [width] => lists((values, rows), width).0,
        [steps, width] => {
            let (inner, _) = lists((values, rows * steps), width);
            lists((inner, rows), steps).0
        }
        _ => {
            return Err(errors::request(&format!("column `{name}`: expected at most three axes, got {}", shape.len())));
        }
    }))
}

/// Converts a Python value. NaN stays a number.
fn of_object(name: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<OwnedCell> {
    if depth > DEPTH {
        return Err(errors::request(&format!("column `{name}`: expected lists at most {DEPTH} deep")));
    }
    let scalar = if value.hasattr("item")?
        && value.getattr("shape").is_ok_and(|shape| shape.len().is_ok_and(|axes| axes == 0))
    {
        value.call_method0("item")?
    } else {
        value.clone()
    };
    let inner = |value: &Bound<'_, PyAny>| of_object(name, value, depth + 1);
    Ok(if scalar.is_none() {
        OwnedCell::Null
    } else if scalar.is_instance_of::<PyBool>() {
        OwnedCell::Int(i64::from(scalar.extract::<bool>()?))
    } else if scalar.is_instance_of::<PyInt>() {
        OwnedCell::Int(scalar.extract()?)
    } else if scalar.is_instance_of::<PyFloat>() {
        OwnedCell::Float(scalar.extract()?)
    } else if scalar.is_instance_of::<PyString>() {
        OwnedCell::Text(scalar.extract()?)
    } else if let Ok(map) = scalar.cast::<PyDict>() {
        let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((inner(&key)?, inner(&value)?));
        OwnedCell::Map(map.iter().map(entry).collect::<PyResult<_>>()?)
    } else if scalar.is_instance_of::<PyList>() || scalar.is_instance_of::<PyTuple>() || scalar.hasattr("__array__")? {
        OwnedCell::List(scalar.try_iter()?.map(|one| inner(&one?)).collect::<PyResult<_>>()?)
    } else {
        let found = scalar.get_type().name()?;
        let message = format!("column `{name}` holds `{found}`: expected numbers, strings, lists, dicts or arrays");
        return Err(PyTypeError::new_err(message));
    })
}
