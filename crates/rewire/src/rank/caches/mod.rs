//! Histories of users who come back.

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

/// How much is kept of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Rows of a page: of the sequence of a user, its contextual rows and events. The last page of a user may have room left.
    pub page_rows: usize,
    /// Bytes of keys and values on the device, or in memory where the model runs on the CPU.
    pub device_bytes: u64,
    /// Bytes on the host of users whose pages others took; 0 lets go of them.
    pub host_bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { page_rows: 64, device_bytes: 256 << 20, host_bytes: 0 }
    }
}

/// What became of requests so far, and what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// Requests whose history was there.
    pub hits: u64,
    /// Requests whose history was there but for its last events.
    pub appended: u64,
    /// Requests whose history was computed.
    pub computed: u64,
    /// Users that went to the host.
    pub spilled: u64,
    /// Users that came back from it.
    pub restored: u64,
    /// Users that were let go for others.
    pub evicted: u64,
    /// Users that are kept.
    pub users: usize,
    /// Pages of the device, and those of them that nobody has.
    pub pages: usize,
    /// Pages that nobody has.
    pub free_pages: usize,
    /// Bytes on the host.
    pub host_bytes: u64,
}

/// A ranker that keeps the histories of users, keys and values of all layers, from call to call: one who comes back with the same history
/// costs the candidates alone.
///
/// Histories are told by what they hold, hashed, and by the model's parameters: a score is that of [`Ranker::rank`], to the bit, whatever was
/// kept. Where events were added, only those are computed if the model allows it; where its positions or times count from the end of the
/// history, or contextual rows see all of it, the history is computed again. A history that lost its oldest events is another.
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
    /// Takes the memory of the pages.
    ///
    /// # Errors
    /// [`RankError::NotApart`] for a model whose candidates see each other, or whose history sees them; [`RankError::Run`] where there is no
    /// room.
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

    /// [`Ranker::rank_async`]. A request without candidates keeps its history for later ones.
    ///
    /// # Errors
    /// As [`Ranker::rank_async`]. What was kept of the users of the requests may be gone then.
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

    /// Keeps the first `events` events of a user alone. Returns false where less is kept, or the model does not allow it: what is kept
    /// depends on later events.
    pub fn truncate(&mut self, user: &User, events: usize) -> bool {
        self.pages.truncate(user, events)
    }

    /// Lets go of a user. Returns false where nothing was kept.
    pub fn forget(&mut self, user: &User) -> bool {
        self.pages.forget(user)
    }

    /// Lets go of all users. The pages stay.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// What became of requests so far, and what is kept.
    pub fn report(&self) -> CacheReport {
        self.pages.report()
    }
}

/// The requests of a batch, with what was ranked of them.
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
