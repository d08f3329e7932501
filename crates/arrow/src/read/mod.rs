mod column;
mod field;
mod text;

use crate::{ArrowArray, ArrowSchema};
use field::Field;
use rewire::predict;
use rewire::rank::{Batch, Columns, ColumnsError, User};
use thiserror::Error;

/// Why a table makes no requests.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// A column or a structure is not as it must be.
    #[error("`{name}`: expected {expected}")]
    Column {
        /// The column, or the part of Arrow's structures.
        name: String,
        /// What it must be.
        expected: String,
    },
    /// The columns make no requests of the model.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
}

impl TableError {
    pub(crate) fn new(name: &str, expected: impl Into<String>) -> Self {
        Self::Column { name: name.to_owned(), expected: expected.into() }
    }
}

/// Adds requests from a table: a struct array, a row a request. Its columns are `user` (text or integers of 64 bits; rows are named by their
/// position without it), features of users by their names, and lists `history.NAME` and `candidates.NAME`, or lists `NAME` in structs `history` and
/// `candidates`, of integers of 32 or 64 bits. Nothing may be null in what the model reads. The lists are read where they are; the
/// table stays the caller's.
///
/// # Errors
/// [`TableError`] names the column that is not good. Where columns are not good nothing is added; where the values of a request are not
/// good, it ends what is added.
///
/// # Safety
/// `schema` and `array` are null or as Arrow's C data interface has them; nobody changes or frees them meanwhile.
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

/// A table of columns of any type, borrowed where it can be.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Columns by name.
    pub columns: Vec<(&'a str, predict::Column<'a>)>,
}

/// The columns of these names of a table, a struct array: integers, floats, text, lists, lists of lists and maps. Others are not looked at.
///
/// # Errors
/// [`TableError`] names the column that is not good.
///
/// # Safety
/// `schema` and `array` are null or as Arrow's C data interface has them; nobody changes or frees them for `'a`.
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

/// A column by itself.
///
/// # Errors
/// As [`table`]; `name` is how errors name it.
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
