//! Tables that come by Arrow's C data interface.

use crate::errors;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rewire::rank::Batch;
use rewire_arrow::{ArrowArray, ArrowArrayStream, ArrowSchema, TableError, extend};
use std::ffi::CStr;

/// The reading of a table ends with an error of its own or of whoever takes the parts.
enum Ended {
    Table(TableError),
    Taken(PyErr),
}

impl From<TableError> for Ended {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

/// Hands each part of a table over as requests; `empty` has none.
pub fn each_batch(
    table: &Bound<'_, PyAny>,
    empty: &Batch,
    mut take: impl FnMut(Batch) -> PyResult<()>,
) -> PyResult<()> {
    let mut part = |schema: &ArrowSchema, array: &ArrowArray| {
        let mut batch = empty.clone();
        // SAFETY: both come from a producer of Arrow's interface, and live until this returns.
        unsafe { extend(&mut batch, schema, array) }?;
        take(batch).map_err(Ended::Taken)
    };
    let ended = if table.hasattr("__arrow_c_stream__")? {
        let capsule = table.call_method0("__arrow_c_stream__")?;
        let stream = pointer::<ArrowArrayStream>(&capsule, c"arrow_array_stream")?;
        // SAFETY: a capsule of this name is of a stream, which it releases when it goes.
        unsafe { ArrowArrayStream::read(stream, part) }
    } else if table.hasattr("__arrow_c_array__")? {
        let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            table.call_method0("__arrow_c_array__")?.extract()?;
        let schema = pointer::<ArrowSchema>(&schema, c"arrow_schema")?;
        let array = pointer::<ArrowArray>(&array, c"arrow_array")?;
        // SAFETY: capsules of these names are of a schema and an array, which they release when they go.
        part(unsafe { &*schema }, unsafe { &*array })
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
