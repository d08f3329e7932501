use crate::border::{Failure, Status, call, change, free, give, read, slice, text};
use crate::ranker::Ranker;
use rewire::rank::{self, Columns, User};
use std::ffi::{c_char, c_void};

/// A user feature, one value per request.
pub const REWIRE_CONTEXTUAL: u32 = 0;
/// A feature of past events, one list per request, oldest first.
pub const REWIRE_HISTORY: u32 = 1;
/// A feature of candidates, one list per request.
pub const REWIRE_CANDIDATES: u32 = 2;

/// Signed 32-bit integers.
pub const REWIRE_INT32: u32 = 0;
/// Signed 64-bit integers.
pub const REWIRE_INT64: u32 = 1;
/// Unsigned 32-bit integers.
pub const REWIRE_UINT32: u32 = 2;

/// An array of integers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Integers {
    /// `REWIRE_INT32`, `REWIRE_INT64` or `REWIRE_UINT32`.
    pub r#type: u32,
    /// Pointer to the first value.
    pub values: *const c_void,
    /// Number of values.
    pub count: usize,
}

/// A column of requests. The list of a request holds the values from its offset to the next one, as in Arrow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// `REWIRE_CONTEXTUAL`, `REWIRE_HISTORY` or `REWIRE_CANDIDATES`.
    pub group: u32,
    /// The feature, as in the model's configuration.
    pub name: *const c_char,
    /// The values of all requests.
    pub values: Integers,
    /// One offset more than requests; ignored for user features.
    pub offsets: Integers,
}

/// Requests for a model.
#[derive(Debug)]
pub struct Batch {
    pub(crate) batch: rank::Batch,
}

impl Integers {
    /// # Safety
    /// The values exist, are aligned, and are not changed or freed during `'a`.
    unsafe fn read<'a>(self, name: &str) -> Result<rank::Integers<'a>, Failure> {
        let Self { values, count, .. } = self;
        // SAFETY: the caller's promise.
        unsafe {
            match self.r#type {
                REWIRE_INT32 => Ok(slice::<i32>(values.cast(), count, name)?.into()),
                REWIRE_INT64 => Ok(slice::<i64>(values.cast(), count, name)?.into()),
                REWIRE_UINT32 => Ok(slice::<u32>(values.cast(), count, name)?.into()),
                _ => Err(Failure::argument("type", "REWIRE_INT32, REWIRE_INT64 or REWIRE_UINT32")),
            }
        }
    }
}

impl Column {
    /// # Safety
    /// As of [`rewire_batch_extend`].
    unsafe fn add_to<'a>(&self, columns: Columns<'a>) -> Result<Columns<'a>, Failure> {
        // SAFETY: the caller's promise.
        let (name, values) = unsafe { (text(self.name, "name")?, self.values.read("values")?) };
        // SAFETY: the caller's promise.
        let offsets = || unsafe { self.offsets.read("offsets") };
        match self.group {
            REWIRE_CONTEXTUAL => Ok(columns.contextual(name, values)),
            REWIRE_HISTORY => Ok(columns.history(name, offsets()?, values)),
            REWIRE_CANDIDATES => Ok(columns.candidates(name, offsets()?, values)),
            _ => Err(Failure::argument("group", "REWIRE_CONTEXTUAL, REWIRE_HISTORY or REWIRE_CANDIDATES")),
        }
    }
}

/// Creates an empty batch for this model.
///
/// # Safety
/// `ranker` is null or a handle, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_new(ranker: *const Ranker, out: *mut *mut Batch) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let batch = unsafe { read(ranker, "ranker") }?.ranker.batch();
        // SAFETY: the caller's promise.
        unsafe { give(Batch { batch }, out) }
    })
}

/// Adds requests as columns, whose values are copied. Columns that the model does not read are ignored.
///
/// `users` are names, one per request, or null: users are then named by their position in this call. Invalid columns add nothing. An
/// invalid request stops at that request; the requests before it are added.
///
/// # Safety
/// `batch` is null or a handle that no other thread uses during the call; `users` is null or has `requests` null-terminated strings;
/// `columns` has `count` columns with valid names, values and offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_extend(
    batch: *mut Batch,
    users: *const *const c_char,
    requests: usize,
    columns: *const Column,
    count: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, columns) = unsafe { (change(batch, "batch")?, slice(columns, count, "columns")?) };
        let users: Vec<User> = if users.is_null() {
            (0..requests as i64).map(User::Number).collect()
        } else {
            // SAFETY: the caller's promise.
            let users = unsafe { slice(users, requests, "users") }?;
            // SAFETY: the caller's promise.
            let name = |&user: &*const c_char| Ok(unsafe { text(user, "users") }?.into());
            users.iter().map(name).collect::<Result<_, Failure>>()?
        };
        // SAFETY: the caller's promise.
        let columns = columns.iter().try_fold(Columns::new(users), |all, column| unsafe { column.add_to(all) })?;
        batch.batch.extend(&columns).map_err(|error| Failure::of(Status::Request)(&error))
    })
}

/// Removes all requests.
///
/// # Safety
/// `batch` is null or a handle that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_clear(batch: *mut Batch) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let batch = unsafe { change(batch, "batch") }?;
        batch.batch = batch.batch.emptied();
        Ok(())
    })
}

/// Frees a batch.
///
/// # Safety
/// `batch` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_free(batch: *mut Batch) {
    // SAFETY: the caller's promise.
    unsafe { free(batch) }
}
