mod column;
mod field;
mod text;

use crate::{ArrowArray, ArrowSchema};
use field::Field;
use rewire::predict;
use rewire::rank::{Batch, Columns, ColumnsError, User};
use thiserror::Error;

/// Why a table cannot be read as requests.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// A column or a structure is invalid.
    #[error("`{name}`: expected {expected}")]
    Column {
        /// The column, or the part of Arrow's structures.
        name: String,
        /// The expected value.
        expected: String,
    },
    /// The columns are not valid requests of the model.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
}

impl TableError {
    pub(crate) fn new(name: &str, expected: impl Into<String>) -> Self {
        Self::Column { name: name.to_owned(), expected: expected.into() }
    }
}

/// Adds requests from a table: a struct array, one row per request. Its columns are `user` (strings or 64-bit integers; without it, rows
/// are named by their position), user features by name, and lists `history.NAME` and `candidates.NAME`, or lists `NAME` in structs
/// `history` and `candidates`, of 32-bit or 64-bit integers. Columns that the model reads must not contain nulls. The lists are read in
/// place; the caller keeps the table.
///
/// # Errors
/// [`TableError`] names the invalid column. Invalid columns add nothing. An invalid request stops at that request; the requests before
/// it are added.
///
/// # Safety
/// `schema` and `array` are null or valid structures of Arrow's C data interface, and are not changed or freed during the
/// call.
pub unsafe fn extend(
    batch: &mut Batch,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
) -> Result<(), TableError> {
    // SAFETY: the caller's promise.
    let table = unsafe { Field::new("", schema, array)? };
    let fields = table.columns()?;
    let user = fields.iter().find(|field| field.group.is_empty() && field.name == "user");
    let users = user.map_or_else(|| Ok((0..table.length as i64).map(User::Number).collect()), Field::users)?;
    let read: Vec<&Field> = fields.iter().filter(|field| field.is_read(batch.schema())).collect();
    let columns = read.into_iter().try_fold(Columns::new(users), |all, field| field.add_to(all))?;
    Ok(batch.extend(&columns)?)
}

/// A table of columns of any type, borrowed if possible.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Columns by name.
    pub columns: Vec<(&'a str, predict::Column<'a>)>,
}

/// The named columns of a table, a struct array: integers, floats, strings, lists, lists of lists and maps. Other columns are ignored.
///
/// # Errors
/// [`TableError`] names the invalid column.
///
/// # Safety
/// `schema` and `array` are null or valid structures of Arrow's C data interface, and are not changed or freed during `'a`.
pub unsafe fn table<'a>(
    schema: *const ArrowSchema,
    array: *const ArrowArray,
    names: &[String],
) -> Result<Table<'a>, TableError> {
    // SAFETY: the caller's promise.
    let table = unsafe { Field::new("", schema, array)? };
    if table.format() != "+s" {
        return Err(table.unlike("a struct array"));
    }
    let read = table.fields("")?.into_iter().filter(|field| names.iter().any(|name| name == field.name));
    let columns = read.map(|field| Ok((field.name, field.column()?))).collect::<Result<_, TableError>>()?;
    Ok(Table { rows: table.length, columns })
}

/// A single column.
///
/// # Errors
/// As [`table`]; errors refer to the column as `name`.
///
/// # Safety
/// As of [`table`].
pub unsafe fn column<'a>(
    name: &'a str,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
) -> Result<predict::Column<'a>, TableError> {
    // SAFETY: the caller's promise.
    let field = unsafe { Field::new("", schema, array)? };
    field.renamed(name).column()
}
