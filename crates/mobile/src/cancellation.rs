use rewire::rank;

/// Stops rankings from another thread.
#[derive(Debug, Default, uniffi::Object)]
pub struct CancellationToken {
    pub(crate) token: rank::CancellationToken,
}

#[uniffi::export]
impl CancellationToken {
    /// A token that is not cancelled.
    #[uniffi::constructor]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends rankings that were given the token, before the next of the runs that a batch takes. It stays cancelled.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// True once it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}
