//! Calls of a user's own functions and operators.

use super::error::CpuError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A panic in code of a user's own, on its way out of the kernel that called it.
struct Panic {
    name: String,
    reason: String,
}

/// Calls a function or operator of a user's own. A panic passes on under its name, for [`caught`].
pub(super) fn call<T>(name: &str, work: impl FnOnce() -> T) -> T {
    // What the work borrows is dropped on the way out, or is the user's own.
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|payload| resume_unwind(Box::new(Panic { name: name.to_owned(), reason: text(&*payload) })))
}

/// Runs a kernel. A panic in code that it called by [`call`], on any thread, is an error; others pass on.
pub(super) fn caught(kernel: impl FnOnce() -> Result<(), CpuError>) -> Result<(), CpuError> {
    // Registers do not go back to their pool while a thread panics, and results of a failed kernel are dropped.
    catch_unwind(AssertUnwindSafe(kernel)).unwrap_or_else(|payload| match payload.downcast::<Panic>() {
        Ok(panic) => Err(CpuError::Panic { name: panic.name, reason: panic.reason }),
        Err(payload) => resume_unwind(payload),
    })
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message").to_owned()
}
