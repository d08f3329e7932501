//! Tables through Arrow's C data interface.

mod read;
mod write;

use crate::batch::Batch;
use crate::border::{Failure, Status, call, change};
use crate::ranking::Ranking;
use rewire::rank::Columns;
use std::ffi::{c_char, c_void};

/// `struct ArrowSchema` of Arrow's C data interface.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    pub(crate) format: *const c_char,
    pub(crate) name: *const c_char,
    pub(crate) metadata: *const c_char,
    pub(crate) flags: i64,
    pub(crate) n_children: i64,
    pub(crate) children: *mut *mut ArrowSchema,
    pub(crate) dictionary: *mut ArrowSchema,
    pub(crate) release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    pub(crate) private_data: *mut c_void,
}

/// `struct ArrowArray` of Arrow's C data interface.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    pub(crate) length: i64,
    pub(crate) null_count: i64,
    pub(crate) offset: i64,
    pub(crate) n_buffers: i64,
    pub(crate) n_children: i64,
    pub(crate) buffers: *mut *const c_void,
    pub(crate) children: *mut *mut ArrowArray,
    pub(crate) dictionary: *mut ArrowArray,
    pub(crate) release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    pub(crate) private_data: *mut c_void,
}

/// Adds requests from a table: a struct array, a row a request. Its columns are `user` (text or integers of 64 bits; rows are named by their
/// position without it), features of users by their names, and lists `history.NAME` and `candidates.NAME`, of integers of 32 or 64 bits. Nothing may be null
/// in what the model reads. The lists are read where they are; the table stays the caller's.
///
/// # Safety
/// `batch` is null or a handle that nobody else uses meanwhile; `schema` and `array` are null or as Arrow's C data interface has them, not
/// released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_extend_arrow(
    batch: *mut Batch,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, table) = unsafe { (change(batch, "batch")?, read::Field::new(schema, array)?) };
        let (rows, fields) = table.rows()?;
        let users = fields.iter().find(|field| field.name == "user");
        // SAFETY: the caller's promise.
        let users = users.map_or_else(|| Ok(read::numbered(rows)), |field| unsafe { field.users(rows) })?;
        let columns: Vec<_> = fields.iter().filter(|field| field.is_read(batch.batch.schema())).collect();
        // SAFETY: the caller's promise.
        let columns =
            columns.into_iter().try_fold(Columns::new(users), |all, field| unsafe { field.add_to(all, rows) })?;
        batch.batch.extend(&columns).map_err(|error| Failure::of(Status::Request)(&error))
    })
}

/// Hands a ranking out as a table, without a copy: a struct array, a row a request, of the large lists `items`, `positions`, `scores` and `logits`, best
/// first; a candidate's logits are a list of fixed size. Who takes it calls `release` of both; it outlives the ranking.
///
/// # Safety
/// `ranking` is null or a handle; `schema` and `array` are places for structures, which are overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranking_export(
    ranking: *const Ranking,
    schema: *mut ArrowSchema,
    array: *mut ArrowArray,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ranking = unsafe { crate::border::read(ranking, "ranking") }?;
        if schema.is_null() || array.is_null() {
            return Err(Failure::argument("schema, array", "places in memory"));
        }
        // SAFETY: the caller's promise, and neither is null.
        unsafe {
            schema.write(write::schema(ranking.columns.tasks));
            array.write(write::array(&ranking.columns));
        }
        Ok(())
    })
}
