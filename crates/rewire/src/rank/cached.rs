//! Cached histories, and candidates that attend to them.

use super::runs::{History, Kept, Run, Sequence};
use super::scorer::Scorer;
use super::sequence::{Capacity, Layout};
use super::{Batch, CancellationToken, RankError, Ranked};
use rewire_runtime::{Inputs, Session};
use std::ops::Range;

/// Builds the runs for the histories and candidates of some requests of a batch, from the cache positions of their
/// histories.
pub(super) struct Apart<'a> {
    pub batch: &'a Batch,
    pub layouts: &'a [Layout],
    /// By request.
    pub kept: &'a [Kept],
    /// Rows of a run.
    pub most: usize,
    pub cancellation: &'a CancellationToken,
}

impl<'a> Apart<'a> {
    /// The runs that compute the missing parts of the histories of `requests`.
    pub fn histories(&self, requests: Range<usize>) -> Vec<Run<'a>> {
        let mut runs: Vec<Run<'a>> = Vec::new();
        let mut rows = 0;
        for request in requests {
            let (Some(layout), Some(kept)) = (self.layouts.get(request), self.kept.get(request)) else { continue };
            let more = kept.missing().len();
            if more == 0 {
                continue;
            }
            if runs.is_empty() || rows + more > self.most {
                runs.push(Run::default());
                rows = 0;
            }
            runs.last_mut().into_iter().for_each(|run| run.histories.push(History { request, layout, kept }));
            rows += more;
        }
        runs
    }

    /// The runs that score the candidates of `requests`. Runs are filled; a request's candidates may be split over several.
    pub fn candidates(&self, requests: Range<usize>) -> Vec<Run<'a>> {
        let mut runs = vec![Run::default()];
        let mut free = self.most.max(1);
        for request in requests {
            let Some(kept) = self.kept.get(request) else { continue };
            let (mut next, end) = (0, self.batch.candidates(request));
            while next < end {
                if free == 0 {
                    runs.push(Run::default());
                    free = self.most.max(1);
                }
                let part = next..end.min(next + free);
                (next, free) = (part.end, free - part.len());
                if let Some(run) = runs.last_mut() {
                    run.sequences.push(Sequence { request, part, kept });
                }
            }
        }
        runs.retain(|run| !run.sequences.is_empty());
        runs
    }
}

/// Retries after parameters were replaced during scoring.
const TRIES: usize = 16;

/// Discards the scores of requests.
pub(super) fn clear(ranked: &mut [Ranked], requests: Range<usize>) {
    ranked.get_mut(requests).into_iter().flatten().for_each(|ranked| ranked.candidates.clear());
}

impl Scorer {
    /// Scores the candidates of `requests`; missing parts of their histories are computed and cached first. Returns
    /// false if parameters were replaced during the call, or since [`Session::updates`] was `since`: scores then mix
    /// old and new parameters.
    pub async fn score_apart(
        &self,
        session: &mut Session,
        apart: &Apart<'_>,
        requests: Range<usize>,
        since: Option<u64>,
        ranked: &mut [Ranked],
    ) -> Result<bool, RankError> {
        let mut since = since;
        let mut is_one = |session: &Session| *since.get_or_insert(session.updates()) == session.updates();
        let mut all = true;
        for run in apart.histories(requests.clone()) {
            apart.cancellation.check()?;
            session.run_async(&run.inputs(&self.inputs, apart.batch)?).await?;
            all &= is_one(session);
            session.sleep_async().await?;
        }
        for run in apart.candidates(requests) {
            apart.cancellation.check()?;
            let outputs = session.run_async(&run.inputs(&self.inputs, apart.batch)?).await?;
            all &= is_one(session);
            self.take(apart.batch, &run, &outputs, ranked)?;
        }
        Ok(all)
    }

    /// Scores all candidates of a batch with the histories in the session's own cache, one group of requests at a time.
    pub async fn score_once(
        &self,
        session: &mut Session,
        batch: &Batch,
        layouts: &[Layout],
        cancellation: &CancellationToken,
        ranked: &mut [Ranked],
    ) -> Result<(), RankError> {
        let mut kept = vec![Kept::default(); layouts.len()];
        let mut begin = 0;
        while begin < layouts.len() {
            let (requests, rows) = place((&self.capacity, self.most), layouts, begin, &mut kept);
            session.reserve_states_async(rows.next_power_of_two()).await?;
            let apart = Apart { batch, layouts, kept: &kept, most: self.most, cancellation };
            let mut tries = 0;
            loop {
                match self.score_apart(session, &apart, requests.clone(), None, ranked).await {
                    Ok(true) => break,
                    Ok(false) if tries == TRIES => return Err(RankError::Updated { times: TRIES }),
                    Ok(false) => {}
                    // The cache was lost with the device and is recomputed.
                    Err(RankError::Run(error)) if tries == 0 && session.is_retryable(&error) => {
                        session.reset_states();
                        session.reserve_states_async(rows.next_power_of_two()).await?;
                    }
                    Err(error) => return Err(error),
                }
                tries += 1;
                clear(ranked, requests.clone());
            }
            kept.get_mut(requests.clone()).into_iter().for_each(|done| done.fill(Kept::default()));
            begin = requests.end;
        }
        Ok(())
    }

    /// A run of the first histories of a batch with their first candidates, for measurements.
    pub async fn first_apart(
        &self,
        session: &mut Session,
        batch: &Batch,
        layouts: &[Layout],
    ) -> Result<Option<Inputs>, RankError> {
        let mut kept = vec![Kept::default(); layouts.len()];
        let (requests, rows) = place((&self.capacity, self.most), layouts, 0, &mut kept);
        session.reserve_states_async(rows.next_power_of_two()).await?;
        let cancellation = &CancellationToken::default();
        let apart = Apart { batch, layouts, kept: &kept, most: self.most, cancellation };
        let mut run = Run::default();
        run.histories.extend(apart.histories(requests.clone()).into_iter().take(1).flat_map(|run| run.histories));
        run.sequences.extend(apart.candidates(requests).into_iter().take(1).flat_map(|run| run.sequences));
        let is_empty = run.sequences.is_empty();
        Ok(if is_empty { None } else { Some(run.inputs(&self.inputs, batch)?) })
    }
}

/// Assigns consecutive cache positions to the histories of requests from `begin` on, as many as fit into the rows of a
/// run, `most`, and at least one. Returns the requests and their rows. A request without candidates gets no rows.
pub(super) fn place(
    (capacity, most): (&Capacity, usize),
    layouts: &[Layout],
    begin: usize,
    kept: &mut [Kept],
) -> (Range<usize>, usize) {
    let (mut end, mut rows) = (begin, 0);
    while let (Some(layout), Some(kept)) = (layouts.get(end), kept.get_mut(end)) {
        let more = if layout.parts.is_empty() { 0 } else { capacity.history_rows(layout) };
        if rows > 0 && rows + more > most {
            break;
        }
        *kept = Kept { rows: (rows as u32..(rows + more) as u32).collect(), ..Kept::default() };
        (end, rows) = (end + 1, rows + more);
    }
    (begin..end, rows)
}
