use crate::border::{Failure, Status, call, change, free, give, read, slice, text};
use crate::ranker::Ranker;
use rewire::rank::{self, Columns, User};
use std::ffi::{c_char, c_void};

/// A feature of users, a value a request.
pub const REWIRE_CONTEXTUAL: u32 = 0;
/// A feature of past events, a list a request, oldest first.
pub const REWIRE_HISTORY: u32 = 1;
/// A feature of candidates, a list a request.
pub const REWIRE_CANDIDATES: u32 = 2;

/// Integers of 32 bits.
pub const REWIRE_INT32: u32 = 0;
/// Integers of 64 bits.
pub const REWIRE_INT64: u32 = 1;
/// Unsigned integers of 32 bits.
pub const REWIRE_UINT32: u32 = 2;

/// Integers in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Integers {
    /// `REWIRE_INT32`, `REWIRE_INT64` or `REWIRE_UINT32`.
    pub r#type: u32,
    /// The first of them.
    pub values: *const c_void,
    /// How many there are.
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
    /// One more than requests; not read for features of users.
    pub offsets: Integers,
}

/// Requests for a model.
#[derive(Debug)]
pub struct Batch {
    pub(crate) batch: rank::Batch,
}

impl Integers {
    /// # Safety
    /// The values are there, aligned, and nobody changes or frees them meanwhile.
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

/// No requests yet, for this model.
///
/// # Safety
/// `ranker` is null or a handle, `out` a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_new(ranker: *const Ranker, out: *mut *mut Batch) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let batch = unsafe { read(ranker, "ranker") }?.ranker.batch();
        // SAFETY: the caller's promise.
        unsafe { give(Batch { batch }, out) }
    })
}

/// Adds requests as columns, whose values are copied. Columns that the model does not read are left alone.
///
/// `users` are names, a request each, or null: users are then named by their position among those that are added. Where columns are not
/// good nothing is added; where the values of a request are not good, it ends what is added.
///
/// # Safety
/// `batch` is null or a handle that nobody else uses meanwhile; `users` are null or `requests` texts that end with a zero; `columns` are
/// `count` columns, whose names, values and offsets are there.
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

/// Forgets all requests.
///
/// # Safety
/// `batch` is null or a handle that nobody else uses meanwhile.
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
/// `batch` is null, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_batch_free(batch: *mut Batch) {
    // SAFETY: the caller's promise.
    unsafe { free(batch) }
}
