//! Histories of users who come back.

mod chain;
mod table;

use super::cached::Apart;
use super::ranker::Ranker;
use super::runs::Kept;
use super::scorer::Scorer;
use super::sequence::Layout;
use super::{Batch, CancellationToken, RankError, Ranked, Request, User};
use rewire_runtime::{RunError, Session, block_on};
use serde::Serialize;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use table::{Chain, Entry, Place, Table};

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
    session: Session,
    table: Table,
    /// Updates of the model that the histories were computed after.
    updates: Option<u64>,
    /// Users whose histories are being computed: what the table says of them is not so yet.
    pending: HashSet<User>,
    report: CacheReport,
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
        let mut session = scorer.model.session();
        let page = (session.state_row_bytes() * limits.page_rows.max(1) as u64).max(1);
        let most = (i32::MAX as u64 / limits.page_rows.max(1) as u64).max(1);
        let pages = (limits.device_bytes / page).clamp(1, most) as usize;
        session.reserve_states(pages * limits.page_rows.max(1))?;
        let table = Table::new(&limits, pages);
        Ok(Self {
            scorer,
            cancellation: ranker.cancellation().clone(),
            session,
            table,
            updates: None,
            pending: HashSet::new(),
            report: CacheReport::default(),
        })
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
        let mut ranked = Ranked::of_batch(batch, &layouts);
        let mut kept = vec![Kept::default(); layouts.len()];
        let mut begin = 0;
        while begin < layouts.len() {
            let done = self.rank_some(batch, &layouts, begin, &mut kept, &mut ranked).await;
            begin = done.inspect_err(|_| self.let_pending_go())?;
        }
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
        let is_cut = |entry: &Entry| events < entry.chain.len();
        if !self.scorer.appends || !self.table.get(user).is_some_and(is_cut) {
            return false;
        }
        let rows = self.scorer.capacity.contextual + events * self.scorer.capacity.rows_per_event;
        match self.table.take(user) {
            Some(Entry { mut chain, place: Place::Pages(mut pages), .. }) => {
                chain.truncate(events + 1);
                let rest = pages.split_off(self.table.pages_of(rows).min(pages.len()));
                self.table.give(rest);
                self.table.insert(user, chain, rows, Place::Pages(pages));
                true
            }
            // What is on the host comes back whole or not at all.
            _ => false,
        }
    }

    /// Lets go of a user. Returns false where nothing was kept.
    pub fn forget(&mut self, user: &User) -> bool {
        self.table.remove(user)
    }

    /// Lets go of all users. The pages stay.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    /// What became of requests so far, and what is kept.
    pub fn report(&self) -> CacheReport {
        CacheReport {
            users: self.table.users(),
            pages: self.table.pages,
            free_pages: self.table.free_pages(),
            host_bytes: self.table.host_bytes,
            ..self.report
        }
    }

    /// Ranks requests from `begin` on, as many as there are pages for at once. Returns where the next begin.
    async fn rank_some(
        &mut self,
        batch: &Batch,
        layouts: &[Layout],
        begin: usize,
        kept: &mut [Kept],
        ranked: &mut [Ranked],
    ) -> Result<usize, RankError> {
        // A call before may have been dropped on the way.
        self.let_pending_go();
        let requests = self.admit(batch, layouts, begin, kept).await?;
        if requests.is_empty() {
            self.rank_beside(batch, begin, ranked).await?;
            return Ok(begin + 1);
        }
        let apart = Apart { batch, layouts, kept, most: self.scorer.most, cancellation: &self.cancellation };
        let (session, since) = (&mut self.session, self.updates);
        match self.scorer.score_apart(session, &apart, requests.clone(), since, ranked).await {
            Ok(true) => {
                self.updates = Some(self.session.updates());
                self.pending.clear();
                return Ok(requests.end);
            }
            // All that is kept is of parameters that were replaced.
            Ok(false) => self.updates = None,
            // With the device all pages are gone.
            Err(RankError::Run(error)) if self.session.is_retryable(&error) => {
                self.session.reset_states();
                self.session.reserve_states_async(self.table.pages * self.table.page_rows).await?;
            }
            Err(error) => return Err(error),
        }
        self.clear();
        for request in requests.clone() {
            self.rank_beside(batch, request, ranked).await?;
        }
        Ok(requests.end)
    }

    /// Lets go of users of whom less may be there than the table says.
    fn let_pending_go(&mut self) {
        for user in self.pending.drain() {
            self.table.remove(&user);
        }
    }

    /// Finds pages for the histories of requests from `begin` on, as many as there is room for at once. None where the first alone has no
    /// room.
    async fn admit(
        &mut self,
        batch: &Batch,
        layouts: &[Layout],
        begin: usize,
        kept: &mut [Kept],
    ) -> Result<Range<usize>, RankError> {
        let (since, mut end, mut rows) = (self.table.now(), begin, 0);
        while let (Some(layout), Some(place), Some(user)) =
            (layouts.get(end), kept.get_mut(end), batch.users().get(end))
        {
            let all = self.scorer.capacity.history_rows(layout);
            let chain = chain::of(batch, end, layout, self.scorer.reads_time);
            let is_other = || self.table.get(user).is_none_or(|entry| entry.chain != chain);
            if (rows > 0 && rows + all > self.scorer.most) || (self.pending.contains(user) && is_other()) {
                break;
            }
            let Some(found) = self.place(user, chain, all, since).await? else { break };
            rows += found.missing().len();
            *place = found;
            end += 1;
        }
        Ok(begin..end)
    }

    /// The rows of the cache for a history, of which those that are there stay. `None` if there is no room beside users that were used
    /// since a time.
    async fn place(&mut self, user: &User, chain: Chain, rows: usize, since: u64) -> Result<Option<Kept>, RankError> {
        let needed = self.table.pages_of(rows);
        self.pending.insert(user.clone());
        let known = self.table.get(user).map_or(0, |entry| chain::common(&entry.chain, &chain, self.scorer.appends));
        if known == 0 {
            self.table.remove(user);
            let Some(pages) = self.room(needed, since)? else { return Ok(None) };
            self.report.computed += 1;
            let place = Kept { rows: self.table.rows_of(&pages, rows), ..Kept::default() };
            self.table.insert(user, chain, rows, Place::Pages(pages));
            return Ok(Some(place));
        }
        let Some(Entry { rows: held, place, chain: before, .. }) = self.table.take(user) else { return Ok(None) };
        let mut pages = match place {
            Place::Pages(pages) => pages,
            Place::Host(spilled) => {
                let Some(pages) = self.room(self.table.pages_of(held), since)? else { return Ok(None) };
                let restored = self.session.restore_rows_async(&self.table.ranges_of(&pages, held), spilled).await;
                if let Err(error) = restored {
                    self.table.give(pages);
                    return Err(error.into());
                }
                self.report.restored += 1;
                pages
            }
        };
        if pages.len() > needed {
            let rest = pages.split_off(needed);
            self.table.give(rest);
        }
        match self.room(needed - pages.len(), since)? {
            Some(more) => pages.extend(more),
            None => {
                self.table.insert(user, before, held, Place::Pages(pages));
                return Ok(None);
            }
        }
        let events = known - 1;
        let present = (self.scorer.capacity.contextual + events * self.scorer.capacity.rows_per_event).min(rows);
        *(if present < rows { &mut self.report.appended } else { &mut self.report.hits }) += 1;
        let place = Kept { rows: self.table.rows_of(&pages, rows), before: present, events };
        self.table.insert(user, chain, rows, Place::Pages(pages));
        Ok(Some(place))
    }

    /// So many pages, for which users make room that were not used since a time.
    fn room(&mut self, pages: usize, since: u64) -> Result<Option<Vec<u32>>, RunError> {
        loop {
            if let Some(pages) = self.table.allocate(pages) {
                return Ok(Some(pages));
            }
            let Some(user) = self.table.oldest(since) else { return Ok(None) };
            let Some(Entry { rows, place: Place::Pages(own), .. }) = self.table.get(&user) else { return Ok(None) };
            let ranges = self.table.ranges_of(own, *rows);
            let bytes = *rows as u64 * self.session.state_row_bytes();
            if self.table.make_host_room(bytes) {
                let spilled = self.session.spill_rows(&ranges)?;
                self.table.spill(&user, spilled);
                self.report.spilled += 1;
            } else {
                self.table.remove(&user);
                self.report.evicted += 1;
            }
        }
    }

    /// Ranks a request without keeping anything of it.
    async fn rank_beside(&self, batch: &Batch, request: usize, ranked: &mut [Ranked]) -> Result<(), RankError> {
        let mut alone = Batch::new(self.scorer.schema.clone());
        alone.append(batch, request);
        let scored = self.scorer.rank(&alone, &self.cancellation).await?.pop();
        if let (Some(place), Some(scored)) = (ranked.get_mut(request), scored) {
            *place = scored;
        }
        Ok(())
    }
}
