//! Values passed by pointers from other languages. The error of an invalid pointer describes the expected one.

use std::ffi::{CStr, c_char};

/// The value behind a pointer.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// It is null, or refers to a value that is not changed or freed during `'a`.
pub unsafe fn read<'a, T>(pointer: *const T) -> Result<&'a T, &'static str> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or("one that is not null")
}

/// [`read`] with mutable access.
///
/// # Errors
/// The pointer is null.
///
/// # Safety
/// It is null, or refers to a value that is not used otherwise during `'a`.
pub unsafe fn change<'a, T>(pointer: *mut T) -> Result<&'a mut T, &'static str> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or("one that is not null")
}

/// A null-terminated string.
///
/// # Errors
/// The pointer is null, or the string is not UTF-8.
///
/// # Safety
/// The pointer is null, or refers to a null-terminated string that is not changed or freed during `'a`.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, &'static str> {
    // SAFETY: the caller's promise, and the pointer is not null.
    let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().ok()).flatten();
    text.ok_or("null-terminated UTF-8")
}

/// An array of values.
///
/// # Errors
/// The pointer is null or misaligned although there are values, or their size exceeds memory.
///
/// # Safety
/// The pointer refers to `count` values that are not changed or freed during `'a`, or is null.
pub unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], &'static str> {
    match count {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err("values, because the count is not 0"),
        _ if !pointer.is_aligned() => Err("values at a multiple of their size"),
        _ if count > isize::MAX as usize / size_of::<T>().max(1) => Err("a number of values that fits into memory"),
        // SAFETY: the caller's promise, and the pointer is aligned, not null, and the size does not exceed an allocation's
        // limit.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}
