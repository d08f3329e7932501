use crate::hash::{UNKNOWN, unit};
use crate::ranking::Ranking;
use crate::state::{Entry, FREE, MapState};
use crate::{Admission, Options, Threshold};
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::HashMap;

/// A row that an id took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The row.
    pub row: u32,
    /// The id.
    pub id: i64,
    /// The id that had the row before.
    pub evicted: Option<i64>,
}

/// The result of [`IdMap::step`], with which [`MapState::apply`] follows.
#[derive(Clone, Debug, Default)]
pub struct MapStep {
    /// The steps of the map, including this one.
    pub number: u64,
    /// The row of each id of the step; ids without a row have [`Options::rows`].
    pub rows: Vec<u32>,
    /// The rows that ids took, in the order in which they took them.
    pub placed: Vec<Placed>,
    /// New entries of rows.
    pub(crate) used: Vec<(u32, Entry)>,
    /// The ids of the step until the next admission; `None` if it admits ids.
    pub(crate) window: Option<Vec<Entry>>,
    /// New occurrences of ids that wait for admission, 0 for those that do not wait any more.
    pub(crate) waiting: Vec<(i64, u64)>,
    /// True if an id that occurs in the step may have lost its row.
    displaces: bool,
}

/// An id since the last admission, with its row.
#[derive(Clone, Copy, Debug)]
struct Seen {
    row: u32,
    entry: Entry,
}

/// The rows of ids, for one thread that counts, admits and evicts them.
#[derive(Clone, Debug)]
pub struct IdMap {
    /// Its window is empty: the map of the training holds the rows.
    state: MapState,
    rows: HashMap<i64, u32, RandomState>,
    /// Free rows among those of the state, descending.
    holes: Vec<u32>,
    window: Vec<Seen>,
    /// Per row, the occurrences of its id in a step; 0 between steps.
    occurrences: Vec<u32>,
    ranking: Ranking,
}

impl From<&MapState> for IdMap {
    fn from(state: &MapState) -> Self {
        let (mut state, mut holes) = (state.clone(), vec![]);
        let mut rows = HashMap::with_capacity_and_hasher(state.entries.len(), RandomState::default());
        for (entry, row) in state.entries.iter().zip(0..) {
            match entry.id {
                UNKNOWN => holes.push(row),
                id => drop(rows.insert(id, row)),
            }
        }
        holes.reverse();
        let default = state.options.rows;
        let seen = |entry: Entry| Seen { row: rows.get(&entry.id).copied().unwrap_or(default), entry };
        let window = std::mem::take(&mut state.window).into_iter().map(seen).collect();
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
        self.rows.get(&id).copied()
    }

    /// Counts the ids of a step, with repetitions, and after every [`interval`](Options::interval) steps admits and evicts ids.
    pub fn step(&mut self, ids: &[i64]) -> MapStep {
        self.state.steps += 1;
        let mut step = MapStep { number: self.state.steps, ..MapStep::default() };
        let (seen, new) = self.count(ids, &mut step.rows);
        if !self.state.steps.is_multiple_of(u64::from(self.state.options.interval.max(1))) {
            step.window = Some(seen.iter().map(|seen| seen.entry).collect());
            self.window.extend(seen);
            return step;
        }
        self.admit(seen, &mut step);
        self.correct(ids, &new, &mut step);
        step
    }

    /// The rows of the ids of a step, and the distinct ids with their occurrences. Returns the ids without a row with
    /// their positions, sorted.
    fn count(&mut self, ids: &[i64], rows: &mut Vec<u32>) -> (Vec<Seen>, Vec<(i64, u32)>) {
        let (last, default) = (saturated(self.state.steps), self.state.options.rows);
        // Loops whose branches do not depend on the tables that they read: a processor then waits for many of these reads at once.
        rows.extend(ids.iter().map(|id| self.rows.get(id).copied().unwrap_or(default)));
        let (mut used, mut count, mut new) = (vec![0; ids.len()], 0, vec![]);
        for ((&id, &row), place) in ids.iter().zip(&*rows).zip(0..) {
            match self.occurrences.get_mut(row as usize) {
                Some(occurrences) => {
                    used[count] = row;
                    count += usize::from(*occurrences == 0);
                    *occurrences = occurrences.saturating_add(1);
                }
                None => new.extend((id != UNKNOWN).then_some((id, place))),
            }
        }
        let known = used[..count].iter().map(|&row| {
            let (id, occurrences) = (self.state.entries[row as usize].id, &mut self.occurrences[row as usize]);
            Seen { row, entry: Entry { id, count: std::mem::take(occurrences), last } }
        });
        let mut seen: Vec<Seen> = known.collect();
        new.sort_unstable();
        seen.extend(new.chunk_by(|(a, _), (b, _)| a == b).map(|same| {
            let entry = Entry { id: same[0].0, count: saturated(same.len() as u64), last };
            Seen { row: default, entry }
        }));
        (seen, new)
    }

    /// Admits ids since the last admission.
    fn admit(&mut self, seen: Vec<Seen>, step: &mut MapStep) {
        let mut seen = merged(std::mem::take(&mut self.window), seen);
        if let Admission::Filter(threshold) = self.state.options.admission {
            threshold.apply(&mut seen, self.state.steps);
        }
        let mut new = vec![];
        for Seen { row, entry: mut own } in seen {
            match self.state.entries.get_mut(row as usize) {
                Some(entry) => {
                    entry.count = entry.count.saturating_add(own.count);
                    entry.last = own.last;
                    step.used.push((row, *entry));
                }
                None => new.extend(self.is_admitted(&mut own, step).then_some(own)),
            }
        }
        self.place(new, step);
        self.forget(step);
    }

    /// True if an id occurred often enough, which counts all of its occurrences.
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
            if let Some(id) = evicted {
                self.rows.remove(&id);
                // Ids that a filter rejects are not marked as used.
                step.displaces |= before.last == saturated(now) || matches!(admission, Admission::Filter(_));
            }
            self.rows.insert(entry.id, row);
            if matches!(admission, Admission::Count { .. }) {
                self.wait(entry.id, 0, step);
            }
            step.used.push((row, entry));
            step.placed.push(Placed { row, id: entry.id, evicted });
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

    /// Forgets the ids that occurred least often, if too many wait for admission.
    fn forget(&mut self, step: &mut MapStep) {
        let Admission::Count { capacity, .. } = self.state.options.admission else { return };
        let waiting = &self.state.waiting;
        if waiting.len() <= capacity {
            return;
        }
        let mut all: Vec<(Reverse<u64>, i64)> = waiting.iter().map(|(id, count)| (Reverse(*count), *id)).collect();
        // Room for later ids, so that not every step selects.
        all.select_nth_unstable(capacity - capacity / 8);
        for (_, id) in all.drain(capacity - capacity / 8..) {
            self.wait(id, 0, step);
        }
    }

    /// The rows of the ids of a step after its admission; `new` are those that had none.
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

/// The ids of several steps, each once.
fn merged(mut all: Vec<Seen>, latest: Vec<Seen>) -> Vec<Seen> {
    if all.is_empty() {
        return latest;
    }
    all.extend(latest);
    all.sort_unstable_by_key(|seen| (seen.entry.id, seen.entry.last));
    all.dedup_by(|Seen { entry: later, .. }, Seen { entry: own, .. }| {
        let is_same = later.id == own.id;
        if is_same {
            *own = Entry { id: own.id, count: own.count.saturating_add(later.count), last: later.last };
        }
        is_same
    });
    all
}

impl Threshold {
    /// Retains the ids that pass.
    fn apply(self, seen: &mut Vec<Seen>, step: u64) {
        let total: f64 = seen.iter().map(|seen| f64::from(seen.entry.count)).sum();
        let mean = total / seen.len().max(1) as f64;
        seen.retain(|Seen { entry, .. }| match self {
            Self::Above(least) => f64::from(entry.count) > least,
            Self::AboveMean(factor) => f64::from(entry.count) > mean * factor,
            Self::Probability(probability) => 1.0 - (1.0 - probability).powf(entry.count.into()) > unit(entry.id, step),
        });
    }
}

pub(crate) fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
