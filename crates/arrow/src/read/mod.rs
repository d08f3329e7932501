mod field;
mod text;

use crate::{ArrowArray, ArrowSchema};
use field::Field;
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
