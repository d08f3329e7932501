use crate::batch::Batch;
use crate::border::{Failure, Status, call, change, free, give, read};
use crate::cancellation::CancellationToken;
use crate::ranker::Ranker;
use rewire::rank::{self, RankError, RankedColumns};
use std::sync::Arc;

/// The candidates of all requests, best first, as columns.
#[derive(Debug)]
pub struct Ranking {
    pub(crate) columns: Arc<RankedColumns>,
    /// Logits per candidate.
    pub(crate) tasks: usize,
}

impl Ranking {
    fn of(ranker: &rank::Ranker, batch: &rank::Batch) -> Result<Self, Failure> {
        let failed = |error| match error {
            RankError::Cancelled => Failure::of(Status::Cancelled)(&error),
            _ => Failure::of(Status::Run)(&error),
        };
        let ranked = ranker.rank_batch(batch).map_err(failed)?;
        Ok(Self { columns: Arc::new(ranked.into_iter().collect()), tasks: ranker.tasks().len() })
    }
}

/// The columns of a ranking, which owns their memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// Number of requests.
    pub requests: usize,
    /// Number of candidates of all requests.
    pub candidates: usize,
    /// Logits per candidate.
    pub tasks: usize,
    /// One more than requests: the candidates of a request range from its offset to the next one.
    pub offsets: *const i64,
    /// Per candidate, the value of its first feature.
    pub items: *const i64,
    /// Per candidate, its position in the request.
    pub positions: *const i64,
    /// Per candidate, the probability of the first task.
    pub scores: *const f64,
    /// Per candidate, the logits of all tasks.
    pub logits: *const f32,
}

/// Ranks the candidates of each request. Scores do not depend on the other requests of the batch.
///
/// # Safety
/// `ranker` and `batch` are null or handles, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_rank(ranker: *const Ranker, batch: *const Batch, out: *mut *mut Ranking) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (ranker, batch) = unsafe { (&read(ranker, "ranker")?.ranker, &read(batch, "batch")?.batch) };
        // SAFETY: the caller's promise.
        unsafe { give(Ranking::of(ranker, batch)?, out) }
    })
}

/// `rewire_rank` with a token: if `token` is cancelled, it returns `REWIRE_STATUS_CANCELLED` and ranks nothing.
///
/// # Safety
/// `ranker`, `batch` and `token` are null or handles, `out` points to a variable for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_rank_cancellable(
    ranker: *const Ranker,
    batch: *const Batch,
    token: *const CancellationToken,
    out: *mut *mut Ranking,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (ranker, batch) = unsafe { (&read(ranker, "ranker")?.ranker, &read(batch, "batch")?.batch) };
        // SAFETY: the caller's promise.
        let token = unsafe { &read(token, "token")?.token };
        // SAFETY: the caller's promise.
        unsafe { give(Ranking::of(&ranker.with_cancellation(token), batch)?, out) }
    })
}

/// The columns of a ranking, valid as long as the ranking.
///
/// # Safety
/// `ranking` is null or a handle, `out` points to a variable for the columns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranking_scores(ranking: *const Ranking, out: *mut Scores) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (Ranking { columns, tasks }, out) = unsafe { (read(ranking, "ranking")?, change(out, "out")?) };
        *out = Scores {
            requests: columns.offsets.len().saturating_sub(1),
            candidates: columns.items.len(),
            tasks: *tasks,
            offsets: columns.offsets.as_ptr(),
            items: columns.items.as_ptr(),
            positions: columns.positions.as_ptr(),
            scores: columns.scores.as_ptr(),
            logits: columns.logits.as_ptr(),
        };
        Ok(())
    })
}

/// Frees a ranking.
///
/// # Safety
/// `ranking` is null, or a handle that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewire_ranking_free(ranking: *mut Ranking) {
    // SAFETY: the caller's promise.
    unsafe { free(ranking) }
}
