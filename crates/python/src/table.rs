//! Tables passed by Arrow's C data interface.

use crate::errors;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rewire::predict::Column;
use rewire::rank::Batch;
use rewire_arrow::{ArrowArray, ArrowArrayStream, ArrowSchema, TableError, extend};
use std::ffi::CStr;

/// An error of the table's reader, or of the consumer of its parts.
enum Ended {
    Table(TableError),
    Taken(PyErr),
}

impl From<TableError> for Ended {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

/// True for an Arrow table.
pub fn is_arrow(table: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(table.hasattr("__arrow_c_stream__")? || table.hasattr("__arrow_c_array__")?)
}

/// A capsule of an array with its schema.
pub struct Exported<'py> {
    schema: Bound<'py, PyAny>,
    array: Bound<'py, PyAny>,
}

impl<'py> Exported<'py> {
    /// Exports an object by Arrow's C data interface.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let (schema, array) = object.call_method0("__arrow_c_array__")?.extract()?;
        Ok(Self { schema, array })
    }

    /// The structures, valid as long as `self`.
    fn structures(&self) -> PyResult<(&ArrowSchema, &ArrowArray)> {
        let schema = pointer::<ArrowSchema>(&self.schema, c"arrow_schema")?;
        let array = pointer::<ArrowArray>(&self.array, c"arrow_array")?;
        // SAFETY: capsules with these names hold a schema and an array, which they release when dropped.
        Ok(unsafe { (&*schema, &*array) })
    }

    /// The column; errors refer to it as `name`.
    pub fn column<'a>(&'a self, name: &'a str) -> PyResult<Column<'a>> {
        let (schema, array) = self.structures()?;
        // SAFETY: both come from a producer of Arrow's interface, and live as long as `self`.
        unsafe { rewire_arrow::column(name, schema, array) }.map_err(|error| errors::of_request(&error))
    }
}

/// Passes each part of a table as requests; `empty` has none.
pub fn each_batch(
    table: &Bound<'_, PyAny>,
    empty: &Batch,
    mut take: impl FnMut(Batch) -> PyResult<()>,
) -> PyResult<()> {
    each_part(table, |schema, array| {
        let mut batch = empty.clone();
        // SAFETY: both come from a producer of Arrow's interface, and live until this returns.
        unsafe { extend(&mut batch, schema, array) }?;
        take(batch).map_err(Ended::Taken)
    })
}

/// Passes the named columns of each part of a table, with their number of rows.
pub fn each_table(
    table: &Bound<'_, PyAny>,
    names: &[String],
    mut take: impl FnMut(usize, &[(&str, Column<'_>)]) -> PyResult<()>,
) -> PyResult<()> {
    each_part(table, |schema, array| {
        // SAFETY: both come from a producer of Arrow's interface, and live until this returns.
        let part = unsafe { rewire_arrow::table(schema, array, names) }?;
        take(part.rows, &part.columns).map_err(Ended::Taken)
    })
}

fn each_part(
    table: &Bound<'_, PyAny>,
    mut part: impl FnMut(&ArrowSchema, &ArrowArray) -> Result<(), Ended>,
) -> PyResult<()> {
    let ended = if table.hasattr("__arrow_c_stream__")? {
        let capsule = table.call_method0("__arrow_c_stream__")?;
        let stream = pointer::<ArrowArrayStream>(&capsule, c"arrow_array_stream")?;
        // SAFETY: a capsule with this name holds a stream, which it releases when dropped.
        unsafe { ArrowArrayStream::read(stream, part) }
    } else if table.hasattr("__arrow_c_array__")? {
        let exported = Exported::of(table)?;
        let (schema, array) = exported.structures()?;
        part(schema, array)
    } else {
        let message =
            "expected a table with `__arrow_c_stream__` or `__arrow_c_array__`: pyarrow, polars, pandas from 2.2 on";
        return Err(PyTypeError::new_err(message));
    };
    ended.map_err(|ended| match ended {
        Ended::Table(error) => errors::of_request(&error),
        Ended::Taken(error) => error,
    })
}

fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<*mut T> {
    let capsule = capsule.cast::<PyCapsule>()?;
    Ok(capsule.pointer_checked(Some(name))?.as_ptr().cast())
}
