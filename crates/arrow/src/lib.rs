//! Requests, rankings and predictions as tables, with [Arrow's C data interface](https://arrow.apache.org/docs/format/CDataInterface.html):
//! lists are not copied in either direction, and no Arrow library is needed.

pub mod foreign;
mod owned;
mod read;
mod stream;
mod write;

pub use owned::{OwnedTable, OwnedValues, rows_of};
pub use read::{Table, TableError, column, extend, table};
pub use stream::ArrowArrayStream;
pub use write::{Column, Value, export};

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

/// `struct ArrowSchema` of Arrow's C data interface.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray` of Arrow's C data interface.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: exported structures own strings and an owner that is `Send`; Arrow allows any thread to release structures of other producers.
unsafe impl Send for ArrowSchema {}

// SAFETY: as for `ArrowSchema`.
unsafe impl Send for ArrowArray {}

impl ArrowSchema {
    /// An empty schema, marked as released.
    pub const fn empty() -> Self {
        Self {
            format: null(),
            name: null(),
            metadata: null(),
            flags: 0,
            n_children: 0,
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }
}

impl ArrowArray {
    /// An empty array, marked as released.
    pub const fn empty() -> Self {
        Self {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null_mut(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it is not released yet, and no longer used.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it is not released yet, and no longer used.
            unsafe { release(self) }
        }
    }
}
