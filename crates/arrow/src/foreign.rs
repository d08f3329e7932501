//! What callers in other languages hand over by pointers. A pointer that is not good is an error that says what it must be.

use std::ffi::{CStr, c_char};

/// What a pointer is of.
///
/// # Errors
/// It is null.
///
/// # Safety
/// It is null, or of a value that nobody changes or frees for `'a`.
pub unsafe fn read<'a, T>(pointer: *const T) -> Result<&'a T, &'static str> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or("one that is not null")
}

/// As [`read`], to change it.
///
/// # Errors
/// It is null.
///
/// # Safety
/// It is null, or of a value that nobody else uses for `'a`.
pub unsafe fn change<'a, T>(pointer: *mut T) -> Result<&'a mut T, &'static str> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or("one that is not null")
}

/// Text that ends with a zero.
///
/// # Errors
/// It is null, or no UTF-8.
///
/// # Safety
/// The pointer is null, or of text that ends with a zero, which nobody changes or frees for `'a`.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, &'static str> {
    // SAFETY: the caller's promise, and the pointer is not null.
    let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().ok()).flatten();
    text.ok_or("UTF-8 that ends with a zero")
}

/// Values in a row.
///
/// # Errors
/// The pointer is null or not aligned where there are values, or they are more than memory holds.
///
/// # Safety
/// The pointer is of so many values, which nobody changes or frees for `'a`, or null.
pub unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], &'static str> {
    match count {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err("values, since there is a count"),
        _ if !pointer.is_aligned() => Err("values at a multiple of their size"),
        _ if count > isize::MAX as usize / size_of::<T>().max(1) => Err("as many as memory holds"),
        // SAFETY: the caller's promise, and the pointer is aligned, not null, and of no more than an allocation holds.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}
