use super::RankError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops rankings from another thread. Clones share one token; a cancelled token stays cancelled.
///
/// ```no_run
/// use rewire::rank::{CancellationToken, RankError, RankOptions, Ranker};
/// let ranker = Ranker::load("model.rewire".as_ref(), &RankOptions::default())?;
/// let batch = ranker.batch();
/// let token = CancellationToken::default();
/// std::thread::scope(|scope| {
///     let ranking = scope.spawn(|| ranker.with_cancellation(&token).rank_batch(&batch));
///     token.cancel();
///     assert!(matches!(ranking.join(), Ok(Err(RankError::Cancelled))));
/// });
/// # Ok::<(), RankError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    /// Makes calls with this token or a clone of it stop before their next run.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self) -> Result<(), RankError> {
        if self.is_cancelled() { Err(RankError::Cancelled) } else { Ok(()) }
    }
}
