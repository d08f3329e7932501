use crate::border::{Status, call, free, give, read};
use rewire::rank;

/// Stops rankings from another thread.
#[derive(Debug, Default)]
pub struct CancellationToken {
    pub(crate) token: rank::CancellationToken,
}

/// A token that is not cancelled.
///
/// # Safety
/// `out` is null or a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_cancellation_token_new(out: *mut *mut CancellationToken) -> Status {
    // SAFETY: the caller's promise.
    call(|| unsafe { give(CancellationToken::default(), out) })
}

/// Ends rankings that were given the token, with `REWIRE_STATUS_CANCELLED` and before the next of the runs that a batch takes. It stays
/// cancelled. Any thread calls it.
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
/// `token` is null, or a handle that is not used any more, by rankings under way neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_cancellation_token_free(token: *mut CancellationToken) {
    // SAFETY: the caller's promise.
    unsafe { free(token) }
}
