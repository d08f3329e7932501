use rewire::rank;

/// Stops rankings from another thread.
#[derive(Debug, Default, uniffi::Object)]
pub struct CancellationToken {
    pub(crate) token: rank::CancellationToken,
}

#[uniffi::export]
impl CancellationToken {
    /// Creates a token.
    #[uniffi::constructor]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends rankings with this token before their next run. The token stays cancelled.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// True once the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}
