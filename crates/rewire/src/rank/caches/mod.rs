//! KV caches of returning users' histories.

mod chain;
mod pages;
mod table;

use super::cached::Apart;
use super::ranker::Ranker;
use super::runs::Kept;
use super::scorer::Scorer;
use super::sequence::Layout;
use super::{Batch, CancellationToken, RankError, Ranked, Request, User};
use rewire_runtime::{Session, block_on};
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use pages::{HistoryRows, Pages, Requests};
pub(crate) use table::Chain;

/// Capacity of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Rows per page. Pages hold a user's contextual rows and events; the last page of a user may have free rows.
    pub page_rows: usize,
    /// Bytes of keys and values on the device, or in host memory if the model runs on the CPU.
    pub device_bytes: u64,
    /// Host bytes for users evicted from the device; 0 drops them.
    pub host_bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { page_rows: 64, device_bytes: 256 << 20, host_bytes: 0 }
    }
}

/// Counts of requests so far, and the content of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// Requests with a cached history.
    pub hits: u64,
    /// Requests with a cached history to which new events were appended.
    pub appended: u64,
    /// Requests with a recomputed history.
    pub computed: u64,
    /// Users moved to the host.
    pub spilled: u64,
    /// Users moved back from the host.
    pub restored: u64,
    /// Users evicted for others.
    pub evicted: u64,
    /// Cached users.
    pub users: usize,
    /// Pages of the device, used and free.
    pub pages: usize,
    /// Free pages.
    pub free_pages: usize,
    /// Bytes used on the host.
    pub host_bytes: u64,
}

/// A ranker with a KV cache of user histories, for all layers. Returning users with an unchanged history cost only candidate scoring.
///
/// A history is identified by the hash of its content and by the model's parameters. Scores equal those of
/// [`Ranker::rank`] bit for bit, whatever is cached. If events were added, only those are computed. Exceptions are
/// models whose positions or times count from the end of the history, or whose contextual rows attend to all of it:
/// their histories are recomputed. A history that lost its oldest events counts as a different one.
///
/// ```no_run
/// use rewire::rank::{CacheLimits, Caches, RankOptions, Ranker, Request};
/// let ranker = Ranker::load("model.rewire".as_ref(), &RankOptions::default())?;
/// let mut caches = Caches::new(&ranker, CacheLimits::default())?;
/// let request = Request::new("u1").history("item_id", [41, 7]).candidates("item_id", [12, 5]);
/// caches.rank(std::slice::from_ref(&request))?;
/// caches.rank(&[request])?;
/// assert_eq!(caches.report().hits, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Caches {
    scorer: Arc<Scorer>,
    cancellation: CancellationToken,
    pages: Pages,
}

impl Caches {
    /// Allocates the pages.
    ///
    /// # Errors
    /// [`RankError::NotApart`] for a model whose candidates attend to each other, or whose history attends to them; [`RankError::Run`] if
    /// memory is insufficient.
    pub fn new(ranker: &Ranker, limits: CacheLimits) -> Result<Self, RankError> {
        let scorer = ranker.scorer().clone();
        if !scorer.is_apart {
            return Err(RankError::NotApart);
        }
        let rows = HistoryRows {
            contextual: scorer.capacity.contextual,
            rows_per_event: scorer.capacity.rows_per_event,
            appends: scorer.appends,
            most: scorer.most,
        };
        let pages = Pages::new(&scorer.model, limits, rows)?;
        Ok(Self { scorer, cancellation: ranker.cancellation().clone(), pages })
    }

    /// [`Ranker::rank_async`]. A request without candidates caches its history for later calls.
    ///
    /// # Errors
    /// As [`Ranker::rank_async`]. The cached histories of the requests' users may be lost then.
    pub async fn rank_async(&mut self, requests: &[Request]) -> Result<Vec<Ranked>, RankError> {
        let mut batch = Batch::new(self.scorer.schema.clone());
        requests.iter().try_for_each(|request| batch.push(request))?;
        self.rank_batch_async(&batch).await
    }

    /// [`Caches::rank_async`], blocking.
    ///
    /// # Errors
    /// As [`Caches::rank_async`].
    pub fn rank(&mut self, requests: &[Request]) -> Result<Vec<Ranked>, RankError> {
        block_on(self.rank_async(requests))
    }

    /// [`Caches::rank_async`] for the requests of a batch.
    ///
    /// # Errors
    /// As [`Caches::rank_async`], and [`RankError::Schema`] for a batch of another model.
    pub async fn rank_batch_async(&mut self, batch: &Batch) -> Result<Vec<Ranked>, RankError> {
        if *batch.schema() != *self.scorer.schema {
            return Err(RankError::Schema);
        }
        let layouts = self.scorer.layouts(batch);
        let ranked = Ranked::of_batch(batch, &layouts);
        let mut requests =
            RankRequests { scorer: &self.scorer, cancellation: &self.cancellation, batch, layouts, ranked };
        self.pages.serve(&mut requests).await?;
        let mut ranked = requests.ranked;
        ranked.iter_mut().for_each(Ranked::sort);
        Ok(ranked)
    }

    /// [`Caches::rank_batch_async`], blocking.
    ///
    /// # Errors
    /// As [`Caches::rank_batch_async`].
    pub fn rank_batch(&mut self, batch: &Batch) -> Result<Vec<Ranked>, RankError> {
        block_on(self.rank_batch_async(batch))
    }

    /// Keeps only the first `events` events of a user. Returns false if fewer are cached, or if the model does not allow it because
    /// cached values depend on later events.
    pub fn truncate(&mut self, user: &User, events: usize) -> bool {
        self.pages.truncate(user, events)
    }

    /// Removes a user from the cache. Returns false if the user was not cached.
    pub fn forget(&mut self, user: &User) -> bool {
        self.pages.forget(user)
    }

    /// Removes all users from the cache. The pages stay allocated.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Counts of requests so far, and the content of the cache.
    pub fn report(&self) -> CacheReport {
        self.pages.report()
    }
}

/// The requests of a batch, with their rankings so far.
struct RankRequests<'a> {
    scorer: &'a Scorer,
    cancellation: &'a CancellationToken,
    batch: &'a Batch,
    layouts: Vec<Layout>,
    ranked: Vec<Ranked>,
}

impl Requests for RankRequests<'_> {
    fn user(&self, request: usize) -> Option<&User> {
        self.batch.users().get(request)
    }

    fn history(&self, request: usize) -> Result<(Chain, usize), RankError> {
        let Some(layout) = self.layouts.get(request) else { return Ok((vec![], 0)) };
        let chain = chain::of(self.batch, request, layout, self.scorer.reads_time);
        Ok((chain, self.scorer.capacity.history_rows(layout)))
    }

    async fn serve(
        &mut self,
        session: &mut Session,
        requests: Range<usize>,
        kept: &[Kept],
        since: Option<u64>,
    ) -> Result<bool, RankError> {
        let Self { scorer, cancellation, batch, layouts, ranked } = self;
        let apart = Apart { batch, layouts, kept, most: scorer.most, cancellation };
        scorer.score_apart(session, &apart, requests, since, ranked).await
    }

    async fn serve_beside(&mut self, request: usize) -> Result<(), RankError> {
        let mut alone = Batch::new(self.scorer.schema.clone());
        alone.append(self.batch, request);
        let scored = self.scorer.rank(&alone, self.cancellation).await?.pop();
        if let (Some(place), Some(scored)) = (self.ranked.get_mut(request), scored) {
            *place = scored;
        }
        Ok(())
    }
}
