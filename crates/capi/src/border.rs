use rewire::describe;
use rewire_arrow::foreign;
use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is null or invalid.
    Argument = 1,
    /// The model cannot be read, or the requested device is not available.
    Model = 2,
    /// Requests do not fit the model.
    Request = 3,
    /// A run failed.
    Run = 4,
    /// An internal error of the library. The handles of the call may only be freed.
    Fault = 5,
    /// The call's token was cancelled.
    Cancelled = 6,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure(Status, String);

impl Failure {
    pub(crate) fn argument(name: &str, expected: &str) -> Self {
        Self(Status::Argument, format!("`{name}`: expected {expected}"))
    }

    pub(crate) fn cancelled(message: &str) -> Self {
        Self(Status::Cancelled, message.to_owned())
    }

    pub(crate) fn of(status: Status) -> impl Fn(&dyn Error) -> Self {
        move |error| Self(status, describe(error))
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// The message of the last failed call of this thread: UTF-8, empty if none failed. Valid until the next failed call.
#[unsafe(no_mangle)]
pub extern "C" fn rewire_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn rewire_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Runs the body of a call. Panics are caught here.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure(Status::Fault, said(&*panic))));
    let Err(Failure(status, text)) = done else { return Status::Ok };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with_borrow_mut(|message| *message = text);
    status
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").to_owned()
}

/// The value behind a handle.
///
/// # Safety
/// The pointer is null, or refers to a value that is not changed or freed during `'a`.
pub(crate) unsafe fn read<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { foreign::read(handle) }.map_err(|_| Failure::argument(name, "a handle"))
}

/// [`read`] with mutable access.
///
/// # Safety
/// The pointer is null, or refers to a value that is not used otherwise during `'a`.
pub(crate) unsafe fn change<'a, T>(handle: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { foreign::change(handle) }.map_err(|_| Failure::argument(name, "a place in memory"))
}

/// A null-terminated string.
///
/// # Safety
/// The pointer is null, or refers to such a string, which is not changed or freed during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    unsafe { foreign::text(pointer) }.map_err(|expected| Failure::argument(name, expected))
}

/// An array of values.
///
/// # Safety
/// The pointer is null, or refers to `count` values, which are not changed or freed during `'a`.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    // SAFETY: the caller's promise.
    unsafe { foreign::slice(pointer, count) }.map_err(|expected| Failure::argument(name, expected))
}

/// Returns a value as a handle.
///
/// # Safety
/// `to` is null or points to a variable for a pointer.
pub(crate) unsafe fn give<T>(value: T, to: *mut *mut T) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let to = unsafe { change(to, "out") }?;
    *to = Box::into_raw(Box::new(value));
    Ok(())
}

/// Frees a handle created by [`give`].
///
/// # Safety
/// The handle is null, or was returned by [`give`], is not yet freed and no longer used.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        let value = unsafe { Box::from_raw(handle) };
        call(|| {
            drop(value);
            Ok(())
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::undocumented_unsafe_blocks)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_is_a_status_with_its_message() {
        let message = || unsafe { CStr::from_ptr(rewire_message()) }.to_str().unwrap().to_owned();
        assert_eq!((call(|| panic!("no {}", "way")), message()), (Status::Fault, "no way".to_owned()));
        assert_eq!((call(|| std::panic::panic_any(7)), message()), (Status::Fault, "a panic".to_owned()));
        assert_eq!(
            (call(|| Err(Failure::argument("x", "y"))), message().as_str()),
            (Status::Argument, "`x`: expected y")
        );
        assert_eq!(call(|| Ok(())), Status::Ok);
    }
}
