//! Imported models, which read tables.

use crate::border::{Failure, Status, call, free, give, read, slice, text};
use crate::options::{Options, given};
use rewire::package::Package;
use rewire::predict;
use rewire::rank::RankError;
use rewire_arrow::{ArrowArray, ArrowSchema, OwnedTable, TableError, table};
use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A loaded imported model, for any number of threads.
#[derive(Debug)]
pub struct Predictor {
    predictor: predict::Predictor,
    description: OnceLock<CString>,
}

impl Predictor {
    fn new(predictor: predict::Predictor) -> Self {
        Self { predictor, description: OnceLock::new() }
    }
}

/// Loads an imported model: a package or, unless the library was built only for packages, a folder with `config.json` and
/// `model.safetensors`. `options` may be null.
///
/// # Safety
/// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_predictor_load(
    path: *const c_char,
    options: *const Options,
    out: *mut *mut Predictor,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (Path::new(text(path, "path")?), given(options)) };
        let load = if cfg!(feature = "folders") { predict::Predictor::load } else { predict::Predictor::load_package };
        let predictor = load(path, &options).map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Predictor::new(predictor), out) }
    })
}

/// Loads a package of an imported model from memory. Its bytes are copied. `options` may be null.
///
/// # Safety
/// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_predictor_from_bytes(
    bytes: *const u8,
    count: usize,
    options: *const Options,
    out: *mut *mut Predictor,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (bytes, options) = unsafe { (slice(bytes, count, "bytes")?, given(options)) };
        let package = Package::parse(bytes.to_vec()).map_err(|error| Failure::of(Status::Model)(&error))?;
        let predictor = predict::Predictor::from_package(&package, &options);
        let predictor = predictor.map_err(|error| Failure::of(Status::Model)(&error))?;
        // SAFETY: the caller's promise.
        unsafe { give(Predictor::new(predictor), out) }
    })
}

/// A readable description of the model's inputs and outputs: columns with their ranges, columns of predictions,
/// tensors, and an example row as a line of JSON. UTF-8, valid as long as the predictor; null for null.
///
/// # Safety
/// `predictor` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_predictor_describe(predictor: *const Predictor) -> *const c_char {
    // SAFETY: the caller's promise.
    let Ok(predictor) = (unsafe { read(predictor, "predictor") }) else { return std::ptr::null() };
    let description = || CString::new(predictor.predictor.describe().to_string()).unwrap_or_default();
    predictor.description.get_or_init(description).as_ptr()
}

/// Predicts the rows of a table. Predictions do not depend on the other rows.
///
/// The table is a struct array with one column per feature, by its full name: integers or floats of any width, strings that are split as
/// configured, lists, lists of lists, or maps from ids to weights. Other columns are ignored. Columns are read in place; the caller keeps
/// the table.
///
/// The predictions are a struct array with the columns that the reference writes: 32-bit floats, or large lists of them for several classes
/// or a vector. They have one row per row of the table, or one per candidate. The column `index`, unless it is null, holds the table row of
/// each prediction as a 64-bit integer. The caller releases both structures with `release`; they may outlive the predictor.
///
/// # Safety
/// `predictor` is null or a handle; `schema` and `array` are null or valid structures of Arrow's C data interface, not released; `index` is
/// null or a null-terminated string; `out_schema` and `out_array` point to structures, which are overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_predict_arrow(
    predictor: *const Predictor,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
    index: *const c_char,
    out_schema: *mut ArrowSchema,
    out_array: *mut ArrowArray,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let predictor = unsafe { &read(predictor, "predictor")?.predictor };
        // SAFETY: the caller's promise.
        let index = if index.is_null() { None } else { Some(unsafe { text(index, "index") }?.to_owned()) };
        if out_schema.is_null() || out_array.is_null() {
            return Err(Failure::argument("out_schema, out_array", "places in memory"));
        }
        // SAFETY: the caller's promise.
        let table = unsafe { table(schema, array, predictor.columns()) };
        let table = table.map_err(|error: TableError| Failure::of(Status::Argument)(&error))?;
        let predicted = predictor.predict(table.rows, &table.columns).map_err(|error| match error {
            RankError::Columns(_) => Failure::of(Status::Request)(&error),
            _ => Failure::of(Status::Run)(&error),
        })?;
        let owned = Arc::new(OwnedTable::of_predicted(predictor.outputs(), predicted, index));
        let (of_predictions, predictions) = owned.export();
        // SAFETY: the caller's promise, and neither is null.
        unsafe {
            out_schema.write(of_predictions);
            out_array.write(predictions);
        }
        Ok(())
    })
}

/// Frees a predictor. Its predictions stay valid.
///
/// # Safety
/// `predictor` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_predictor_free(predictor: *mut Predictor) {
    // SAFETY: the caller's promise.
    unsafe { free(predictor) }
}
