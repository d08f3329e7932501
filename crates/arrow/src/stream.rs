use crate::{ArrowArray, ArrowSchema, TableError};
use std::ffi::{CStr, c_char, c_int, c_void};

/// `struct ArrowArrayStream` of Arrow's C stream interface: a table in parts.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

impl ArrowArrayStream {
    /// Calls `each` with each part of a table. The owner keeps the stream and releases it.
    ///
    /// # Errors
    /// [`TableError`] if the stream is released or its producer fails, and the errors of `each`.
    ///
    /// # Safety
    /// `stream` is null, or a valid structure of Arrow's C stream interface that is not used otherwise during the call.
    pub unsafe fn read<E: From<TableError>>(
        stream: *mut Self,
        mut each: impl FnMut(&ArrowSchema, &ArrowArray) -> Result<(), E>,
    ) -> Result<(), E> {
        // SAFETY: the caller's promise.
        let this = unsafe { stream.as_ref() };
        let functions = this.filter(|this| this.release.is_some()).map(|this| (this.get_schema, this.get_next));
        let Some((Some(get_schema), Some(get_next))) = functions else {
            return Err(TableError::new("stream", "one that is not released").into());
        };
        let mut schema = ArrowSchema::empty();
        // SAFETY: the stream is not released, and `schema` can be overwritten.
        let code = unsafe { get_schema(stream, &mut schema) };
        // SAFETY: `code` is the result of the previous call.
        unsafe { Self::check(stream, code) }?;
        loop {
            let mut array = ArrowArray::empty();
            // SAFETY: the stream is not released, and `array` can be overwritten.
            let code = unsafe { get_next(stream, &mut array) };
            // SAFETY: `code` is the result of the previous call.
            unsafe { Self::check(stream, code) }?;
            if array.release.is_none() {
                return Ok(());
            }
            each(&schema, &array)?;
        }
    }

    /// # Safety
    /// `code` is the result of the stream's last call, and the stream is not released.
    unsafe fn check(stream: *mut Self, code: c_int) -> Result<(), TableError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: after a failure the stream returns null or a message that is valid until the next call.
        let message = unsafe {
            let text = (*stream).get_last_error.map(|last| last(stream)).filter(|text| !text.is_null());
            text.map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        Err(TableError::new(
            "stream",
            format!("a table, its producer failed: {}", message.unwrap_or_else(|| code.to_string())),
        ))
    }
}
