//! Calls of user-defined functions and custom operators.

use super::error::CpuError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The payload of a panic in user code, while it unwinds the kernel.
struct Panic {
    name: String,
    reason: String,
}

/// Calls a user-defined function or custom operator. Adds its name to a panic, for [`caught`].
pub(super) fn call<T>(name: &str, work: impl FnOnce() -> T) -> T {
    // Unwind safe: unwinding drops the borrowed data, unless it belongs to the user.
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|payload| resume_unwind(Box::new(Panic { name: name.to_owned(), reason: text(&*payload) })))
}

/// Runs a kernel. A panic in code called by [`call`], on any thread, becomes an error; other panics are resumed.
pub(super) fn caught(kernel: impl FnOnce() -> Result<(), CpuError>) -> Result<(), CpuError> {
    // A panicking thread does not return registers to their pool, and results of a failed kernel are dropped.
    catch_unwind(AssertUnwindSafe(kernel)).unwrap_or_else(|payload| match payload.downcast::<Panic>() {
        Ok(panic) => Err(CpuError::Panic { name: panic.name, reason: panic.reason }),
        Err(payload) => resume_unwind(payload),
    })
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message").to_owned()
}
