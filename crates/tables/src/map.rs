use crate::hash::{UNKNOWN, unit};
use crate::ranking::Ranking;
use crate::row_index::RowIndex;
use crate::state::{Entry, FREE, MapState};
use crate::{Admission, Options, RowUse, Threshold};
use std::cmp::Reverse;

/// The assignment of a row to an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The row.
    pub row: u32,
    /// The id.
    pub id: i64,
    /// The previous id of the row; `None` if it was free.
    pub evicted: Option<i64>,
}

/// The result of [`IdMap::step`], which [`MapState::apply`] applies to a state.
#[derive(Clone, Debug, Default)]
pub struct MapStep {
    /// The number of this step, from 1.
    pub number: u64,
    /// The row of each id of the step; ids without a row have [`Options::rows`].
    pub rows: Vec<u32>,
    /// Rows assigned to new ids, in order of assignment.
    pub placed: Vec<Placed>,
    /// The changed counts and steps of use, by row.
    pub(crate) used: Vec<RowUse>,
    /// The ids of the step, if it defers admission to a later step; `None` if it admits ids.
    pub(crate) window: Option<Vec<Entry>>,
    /// New counts of ids that wait for admission; 0 for ids that no longer wait.
    pub(crate) waiting: Vec<(i64, u64)>,
    /// True if an id that occurs in the step may have lost its row.
    displaces: bool,
}

/// The distinct ids since the last admission.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Ids with a row.
    known: Vec<RowUse>,
    new: Vec<Entry>,
}

/// The map that a training thread uses to count, admit and evict ids.
#[derive(Clone, Debug)]
pub struct IdMap {
    /// The state, except for its window: this map has its own.
    state: MapState,
    rows: RowIndex,
    /// Free rows below the number of entries, descending.
    holes: Vec<u32>,
    window: Seen,
    /// Occurrences of each row's id in the current step; 0 between steps.
    occurrences: Vec<u32>,
    ranking: Ranking,
}

impl From<&MapState> for IdMap {
    fn from(state: &MapState) -> Self {
        let (mut state, mut window) = (state.clone(), Seen::default());
        let rows = RowIndex::from(state.entries.as_slice());
        let is_free = |(entry, row): (&Entry, u32)| (entry.id == UNKNOWN).then_some(row);
        let mut holes: Vec<u32> = state.entries.iter().zip(0..).filter_map(is_free).collect();
        holes.reverse();
        for entry in std::mem::take(&mut state.window) {
            match rows.row(entry.id, &state.entries) {
                Some(row) => window.known.push(RowUse { row, count: entry.count, last: entry.last }),
                None => window.new.push(entry),
            }
        }
        let occurrences = vec![0; state.entries.len()];
        Self { state, rows, holes, window, occurrences, ranking: Ranking::default() }
    }
}

impl IdMap {
    /// A map without ids.
    pub fn new(options: Options) -> Self {
        Self::from(&MapState::new(options))
    }

    /// The row of an id.
    pub fn row(&self, id: i64) -> Option<u32> {
        self.rows.row(id, &self.state.entries)
    }

    /// Counts the ids of a step, with repetitions, and after every [`interval`](Options::interval) steps admits and evicts ids.
    pub fn step(&mut self, ids: &[i64]) -> MapStep {
        self.state.steps += 1;
        let mut step = MapStep { number: self.state.steps, ..MapStep::default() };
        let (mut seen, new) = self.count(ids, &mut step.rows);
        if !self.state.steps.is_multiple_of(u64::from(self.state.options.interval.max(1))) {
            let known = seen.known.iter().map(|used| self.entry(used));
            step.window = Some(known.chain(seen.new.iter().copied()).collect());
            self.window.known.append(&mut seen.known);
            self.window.new.append(&mut seen.new);
            return step;
        }
        self.admit(seen, &mut step);
        self.correct(ids, &new, &mut step);
        step
    }

    /// The entry for a use of a row.
    fn entry(&self, used: &RowUse) -> Entry {
        Entry { id: self.state.entries[used.row as usize].id, count: used.count, last: used.last }
    }

    /// Appends the rows of a step's ids to `rows`. Returns the distinct ids with their counts, and the ids without a row with
    /// their positions, sorted.
    fn count(&mut self, ids: &[i64], rows: &mut Vec<u32>) -> (Seen, Vec<(i64, u32)>) {
        let (last, default) = (saturated(self.state.steps), self.state.options.rows);
        // No branch of these loops depends on a loaded value, so the processor overlaps cache misses.
        rows.extend(ids.iter().map(|id| self.row(*id).unwrap_or(default)));
        let known = match self.counts_at_once() {
            true => self.use_rows(rows, last),
            false => self.count_rows(rows, last),
        };
        let mut new: Vec<(i64, u32)> = vec![];
        for ((&id, &row), place) in ids.iter().zip(&*rows).zip(0..) {
            new.extend((row == default && id != UNKNOWN).then_some((id, place)));
        }
        new.sort_unstable();
        let entry = |same: &[(i64, u32)]| Entry { id: same[0].0, count: saturated(same.len() as u64), last };
        let entries = new.chunk_by(|(a, _), (b, _)| a == b).map(entry).collect();
        (Seen { known, new: entries }, new)
    }

    /// True if occurrences of ids with rows are counted immediately: every step admits, and no filter drops occurrences.
    fn counts_at_once(&self) -> bool {
        let Options { interval, admission, .. } = self.state.options;
        let is_numbered = self.state.steps < u32::MAX.into();
        interval <= 1 && !matches!(admission, Admission::Filter(_)) && self.window.known.is_empty() && is_numbered
    }

    /// Marks the rows of a step as used; returns the distinct rows with their total counts.
    fn use_rows(&mut self, rows: &[u32], last: u32) -> Vec<RowUse> {
        let (mut known, mut count) = (vec![RowUse { row: 0, count: 0, last }; rows.len()], 0);
        for &row in rows {
            let Some(entry) = self.state.entries.get_mut(row as usize) else { continue };
            known[count].row = row;
            count += usize::from(entry.last != last);
            (entry.count, entry.last) = (entry.count.saturating_add(1), last);
        }
        known.truncate(count);
        for used in &mut known {
            used.count = self.state.entries[used.row as usize].count;
        }
        known
    }

    /// The distinct rows of a step, with their counts in it.
    fn count_rows(&mut self, rows: &[u32], last: u32) -> Vec<RowUse> {
        let (mut known, mut count) = (vec![RowUse { row: 0, count: 0, last }; rows.len()], 0);
        for &row in rows {
            let Some(occurrences) = self.occurrences.get_mut(row as usize) else { continue };
            known[count].row = row;
            count += usize::from(*occurrences == 0);
            *occurrences = occurrences.saturating_add(1);
        }
        known.truncate(count);
        for used in &mut known {
            used.count = std::mem::take(&mut self.occurrences[used.row as usize]);
        }
        known
    }

    /// Admits the ids seen since the last admission.
    fn admit(&mut self, seen: Seen, step: &mut MapStep) {
        let is_counted = self.counts_at_once();
        let mut seen = std::mem::take(&mut self.window).and(seen);
        if let Admission::Filter(threshold) = self.state.options.admission {
            threshold.apply(&mut seen, &self.state);
        }
        step.used = seen.known;
        if !is_counted {
            for used in &mut step.used {
                let entry = &mut self.state.entries[used.row as usize];
                (entry.count, entry.last) = (entry.count.saturating_add(used.count), used.last);
                used.count = entry.count;
            }
        }
        let new = seen.new.into_iter().filter_map(|mut own| self.is_admitted(&mut own, step).then_some(own));
        let new = new.collect();
        self.place(new, step);
        self.forget(step);
    }

    /// Adds an id's new occurrences to its count; true if the total reaches the threshold.
    fn is_admitted(&mut self, own: &mut Entry, step: &mut MapStep) -> bool {
        let Admission::Count { threshold, .. } = self.state.options.admission else { return true };
        let before = self.state.waiting.get(&own.id).copied().unwrap_or(0);
        let count = before.saturating_add(own.count.into());
        self.wait(own.id, count, step);
        own.count = saturated(count);
        count >= threshold
    }

    fn wait(&mut self, id: i64, count: u64, step: &mut MapStep) {
        self.state.wait(id, count);
        step.waiting.push((id, count));
    }

    /// Assigns rows to new ids, highest scores first: free rows, then rows of ids with lower scores.
    fn place(&mut self, new: Vec<Entry>, step: &mut MapStep) {
        let Options { eviction, admission, .. } = self.state.options;
        let now = self.state.steps;
        let mut scored: Vec<(u64, Entry)> = new.into_iter().map(|entry| (eviction.score(&entry, now), entry)).collect();
        scored.sort_unstable_by_key(|(score, entry)| (Reverse(*score), entry.id));
        if !eviction.is_steady() {
            self.ranking.clear();
        }
        let count = scored.len();
        for (score, entry) in scored {
            let row = match self.free_row() {
                Some(row) => row,
                None => match self.ranking.lowest(count, eviction, &self.state.entries, now) {
                    Some((lowest, row)) if lowest < score => row,
                    _ => break,
                },
            };
            let before = self.state.set(row, entry);
            let evicted = Some(before.id).filter(|id| *id != UNKNOWN);
            // Ids that a filter rejects are not marked as used.
            let is_used = before.last == saturated(now) || matches!(admission, Admission::Filter(_));
            step.displaces |= evicted.is_some() && is_used;
            if matches!(admission, Admission::Count { .. }) {
                self.wait(entry.id, 0, step);
            }
            step.used.push(RowUse { row, count: entry.count, last: entry.last });
            step.placed.push(Placed { row, id: entry.id, evicted });
        }
        // Separate loops, so that the processor overlaps cache misses.
        for placed in &step.placed {
            placed.evicted.into_iter().for_each(|id| self.rows.remove(id, placed.row));
        }
        for placed in &step.placed {
            self.rows.insert(placed.row, &self.state.entries);
        }
    }

    fn free_row(&mut self) -> Option<u32> {
        if let Some(row) = self.holes.pop() {
            return Some(row);
        }
        let row = u32::try_from(self.state.entries.len()).ok().filter(|row| *row < self.state.options.rows)?;
        self.state.entries.push(FREE);
        self.occurrences.push(0);
        Some(row)
    }

    /// Drops the waiting ids with the lowest counts if more than `capacity` wait for admission.
    fn forget(&mut self, step: &mut MapStep) {
        let Admission::Count { capacity, .. } = self.state.options.admission else { return };
        let waiting = &self.state.waiting;
        if waiting.len() <= capacity {
            return;
        }
        let mut all: Vec<(Reverse<u64>, i64)> = waiting.iter().map(|(id, count)| (Reverse(*count), *id)).collect();
        // Drops an eighth more than necessary, so that not every step has to select.
        all.select_nth_unstable(capacity - capacity / 8);
        for (_, id) in all.drain(capacity - capacity / 8..) {
            self.wait(id, 0, step);
        }
    }

    /// Updates `step.rows` after an admission: evicted ids get the default row, and admitted ones, among `new`, their rows.
    fn correct(&self, ids: &[i64], new: &[(i64, u32)], step: &mut MapStep) {
        let (entries, default) = (&self.state.entries, self.state.options.rows);
        if step.displaces {
            for (id, row) in ids.iter().zip(&mut step.rows) {
                if entries.get(*row as usize).is_some_and(|entry| entry.id != *id) {
                    *row = default;
                }
            }
        }
        for placed in &step.placed {
            let first = new.partition_point(|(id, _)| *id < placed.id);
            for (_, place) in new[first..].iter().take_while(|(id, _)| *id == placed.id) {
                step.rows[*place as usize] = placed.row;
            }
        }
    }
}

impl Seen {
    /// Merges the ids of a later step, each id once.
    fn and(mut self, mut latest: Self) -> Self {
        if self.known.is_empty() && self.new.is_empty() {
            return latest;
        }
        self.known.append(&mut latest.known);
        self.known.sort_unstable_by_key(|used| (used.row, used.last));
        self.known.dedup_by(|later, own| {
            let is_same = later.row == own.row;
            if is_same {
                (own.count, own.last) = (own.count.saturating_add(later.count), later.last);
            }
            is_same
        });
        self.new.append(&mut latest.new);
        self.new.sort_unstable_by_key(|entry| (entry.id, entry.last));
        self.new.dedup_by(|later, own| {
            let is_same = later.id == own.id;
            if is_same {
                (own.count, own.last) = (own.count.saturating_add(later.count), later.last);
            }
            is_same
        });
        self
    }
}

impl Threshold {
    /// Retains the ids that pass the filter.
    fn apply(self, seen: &mut Seen, state: &MapState) {
        let counts = || seen.known.iter().map(|used| used.count).chain(seen.new.iter().map(|entry| entry.count));
        let mean = counts().map(f64::from).sum::<f64>() / counts().count().max(1) as f64;
        let passes = |id: i64, count: u32| match self {
            Self::Above(least) => f64::from(count) > least,
            Self::AboveMean(factor) => f64::from(count) > mean * factor,
            Self::Probability(probability) => 1.0 - (1.0 - probability).powf(count.into()) > unit(id, state.steps),
        };
        seen.known.retain(|used| passes(state.entries[used.row as usize].id, used.count));
        seen.new.retain(|entry| passes(entry.id, entry.count));
    }
}

pub(crate) fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
