use crate::border::{Status, call, free, give, read};
use rewire::rank;

/// Stops rankings from another thread.
#[derive(Debug, Default)]
pub struct CancellationToken {
    pub(crate) token: rank::CancellationToken,
}

/// Creates a token.
///
/// # Safety
/// `out` is null or points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_cancellation_token_new(out: *mut *mut CancellationToken) -> Status {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(CancellationToken::default(), out) })
}

/// Ends rankings with this token before their next run, with `REWIRE_STATUS_CANCELLED`. The token stays cancelled. May be called from
/// any thread.
///
/// # Safety
/// `token` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_cancellation_token_cancel(token: *const CancellationToken) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { read(token, "token") }?.token.cancel();
        Ok(())
    })
}

/// Frees a token.
///
/// # Safety
/// `token` is null, or a handle that is no longer used, also not by running rankings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_cancellation_token_free(token: *mut CancellationToken) {
    // SAFETY: the caller's promise.
    unsafe { free(token) }
}
