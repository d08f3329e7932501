//! Pages of a session's states, and requests that read histories from them.

use super::table::{Chain, Entry, Place, Table};
use super::{CacheLimits, CacheReport, chain};
use crate::rank::runs::Kept;
use crate::rank::{RankError, User};
use rewire_runtime::{Model, RunError, Session};
use std::collections::HashSet;
use std::ops::Range;

/// Requests that read histories, in order.
pub(crate) trait Requests {
    /// The user of a request; `None` past the last request.
    fn user(&self, request: usize) -> Option<&User>;

    /// The hashes of a request's history, and the number of cache rows that it needs.
    fn history(&self, request: usize) -> Result<(Chain, usize), RankError>;

    /// Serves requests, given the cache rows of their histories; missing rows are computed first. Returns false if
    /// parameters were replaced during the call, or since [`Session::updates`] was `since`: results then mix old and
    /// new parameters.
    async fn serve(
        &mut self,
        session: &mut Session,
        requests: Range<usize>,
        kept: &[Kept],
        since: Option<u64>,
    ) -> Result<bool, RankError>;

    /// Serves a request without caching anything of it, replacing its earlier results.
    async fn serve_beside(&mut self, request: usize) -> Result<(), RankError>;
}

/// Maps the hashes of a history to cache rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryRows {
    /// Rows before the first event.
    pub contextual: usize,
    pub rows_per_event: usize,
    /// True if events can be appended to a cached history.
    pub appends: bool,
    /// Rows of histories per run.
    pub most: usize,
}

/// Pages of a session's states, and the users that own them.
#[derive(Debug)]
pub(crate) struct Pages {
    session: Session,
    table: Table,
    rows: HistoryRows,
    /// The model's update counter when the histories were computed.
    updates: Option<u64>,
    /// Users whose histories are being computed, although the table already lists them.
    pending: HashSet<User>,
    report: CacheReport,
}

impl Pages {
    /// Allocates the pages.
    pub fn new(model: &Model, limits: CacheLimits, rows: HistoryRows) -> Result<Self, RankError> {
        let mut session = model.session();
        let page = (session.state_row_bytes() * limits.page_rows.max(1) as u64).max(1);
        let most = (i32::MAX as u64 / limits.page_rows.max(1) as u64).max(1);
        let pages = (limits.device_bytes / page).clamp(1, most) as usize;
        session.reserve_states(pages * limits.page_rows.max(1))?;
        let (table, report) = (Table::new(&limits, pages), CacheReport::default());
        Ok(Self { session, table, rows, updates: None, pending: HashSet::new(), report })
    }

    /// Serves all requests, as many at once as fit into the pages.
    pub async fn serve(&mut self, requests: &mut impl Requests) -> Result<(), RankError> {
        let mut kept = vec![];
        while requests.user(kept.len()).is_some() {
            self.serve_some(requests, &mut kept).await.inspect_err(|_| self.drop_pending())?;
        }
        Ok(())
    }

    /// Serves the requests after those in `kept`, and stores their positions there.
    async fn serve_some(&mut self, requests: &mut impl Requests, kept: &mut Vec<Kept>) -> Result<(), RankError> {
        // An earlier call may have been dropped before it finished.
        self.drop_pending();
        let begin = kept.len();
        self.admit(requests, kept).await?;
        let admitted = begin..kept.len();
        if admitted.is_empty() {
            kept.push(Kept::default());
            return requests.serve_beside(begin).await;
        }
        match requests.serve(&mut self.session, admitted.clone(), kept, self.updates).await {
            Ok(true) => {
                self.updates = Some(self.session.updates());
                self.pending.clear();
                return Ok(());
            }
            // All cached values belong to replaced parameters.
            Ok(false) => self.updates = None,
            // All pages were lost with the device.
            Err(RankError::Run(error)) if self.session.is_retryable(&error) => {
                self.session.reset_states();
                self.session.reserve_states_async(self.table.pages * self.table.page_rows).await?;
            }
            Err(error) => return Err(error),
        }
        self.clear();
        for request in admitted {
            requests.serve_beside(request).await?;
        }
        Ok(())
    }

    /// Removes users whose entries in the table may be ahead of the computed rows.
    fn drop_pending(&mut self) {
        for user in self.pending.drain() {
            self.table.remove(&user);
        }
    }

    /// Allocates pages for the histories of requests after those in `kept`, for as many as fit at once.
    async fn admit(&mut self, requests: &impl Requests, kept: &mut Vec<Kept>) -> Result<(), RankError> {
        let (since, mut rows) = (self.table.now(), 0);
        while let Some(user) = requests.user(kept.len()) {
            let (chain, all) = requests.history(kept.len())?;
            let is_other = || self.table.get(user).is_none_or(|entry| entry.chain != chain);
            if (rows > 0 && rows + all > self.rows.most) || (self.pending.contains(user) && is_other()) {
                break;
            }
            let Some(found) = self.place(user, chain, all, since).await? else { break };
            rows += found.missing().len();
            kept.push(found);
        }
        Ok(())
    }

    /// The cache rows of a history; existing rows are kept. `None` if there is no room without evicting users that were
    /// used since `since`.
    async fn place(&mut self, user: &User, chain: Chain, rows: usize, since: u64) -> Result<Option<Kept>, RankError> {
        let needed = self.table.pages_of(rows);
        self.pending.insert(user.clone());
        let known = self.table.get(user).map_or(0, |entry| chain::common(&entry.chain, &chain, self.rows.appends));
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
        let present = if known == chain.len() { rows } else { self.rows_before(events).min(rows) };
        *(if present < rows { &mut self.report.appended } else { &mut self.report.hits }) += 1;
        let place = Kept { rows: self.table.rows_of(&pages, rows), before: present, events };
        self.table.insert(user, chain, rows, Place::Pages(pages));
        Ok(Some(place))
    }

    fn rows_before(&self, events: usize) -> usize {
        self.rows.contextual + events * self.rows.rows_per_event
    }

    /// Allocates pages, evicting users that were not used since `since`.
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

    /// Keeps only the first `events` events of a user; false if fewer are cached, or events cannot be appended.
    pub fn truncate(&mut self, user: &User, events: usize) -> bool {
        let is_cut = |entry: &Entry| events < entry.chain.len();
        if !self.rows.appends || !self.table.get(user).is_some_and(is_cut) {
            return false;
        }
        let rows = self.rows_before(events);
        match self.table.take(user) {
            Some(Entry { mut chain, place: Place::Pages(mut pages), .. }) => {
                chain.truncate(events + 1);
                let rest = pages.split_off(self.table.pages_of(rows).min(pages.len()));
                self.table.give(rest);
                self.table.insert(user, chain, rows, Place::Pages(pages));
                true
            }
            // A user on the host is restored completely or not at all.
            _ => false,
        }
    }

    /// Removes a user. Returns false if the user was not cached.
    pub fn forget(&mut self, user: &User) -> bool {
        self.table.remove(user)
    }

    /// Removes all users. The pages stay allocated.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    pub fn report(&self) -> CacheReport {
        CacheReport {
            users: self.table.users(),
            pages: self.table.pages,
            free_pages: self.table.free_pages(),
            host_bytes: self.table.host_bytes,
            ..self.report
        }
    }
}
