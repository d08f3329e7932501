use crate::hash::{UNKNOWN, unit};
use crate::ranking::Ranking;
use crate::{Admission, Options, Threshold};
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// An id with its occurrences in a step.
pub type Run = (i64, u32);

/// The ids of a step in ascending order, each once, with its occurrences.
pub fn runs(mut ids: Vec<i64>) -> Vec<Run> {
    ids.sort_unstable();
    ids.chunk_by(|a, b| a == b).filter_map(|same| Some((*same.first()?, saturated(same.len() as u64)))).collect()
}

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

/// The id of a row, with its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub id: i64,
    pub count: u32,
    pub last: u32,
}

/// A row that no id has.
pub(crate) const FREE: Entry = Entry { id: UNKNOWN, count: 0, last: 0 };

/// The rows of ids, with their use.
#[derive(Clone, Debug)]
pub struct IdMap {
    pub(crate) options: Options,
    pub(crate) rows: HashMap<i64, u32, RandomState>,
    /// By row, up to the last one that was taken.
    pub(crate) entries: Vec<Entry>,
    /// Free rows among them, descending.
    pub(crate) holes: Vec<u32>,
    /// The ids since the last admission.
    pub(crate) window: Vec<Entry>,
    /// The occurrences of ids that are not admitted.
    pub(crate) waiting: HashMap<i64, u64, RandomState>,
    ranking: Ranking,
    pub(crate) steps: u64,
    /// By row that ids took since the last call of [`IdMap::changes`], the id that had it then; `None` before the first call.
    changed: Option<BTreeMap<u32, Option<i64>>>,
}

impl IdMap {
    /// A map without ids.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            rows: HashMap::default(),
            entries: vec![],
            holes: vec![],
            window: vec![],
            waiting: HashMap::default(),
            ranking: Ranking::default(),
            steps: 0,
            changed: None,
        }
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The ids that have a row, with their rows, ascending by row.
    pub fn ids(&self) -> impl Iterator<Item = (i64, u32)> {
        self.entries.iter().zip(0..).map(|(entry, row)| (entry.id, row)).filter(|(id, _)| *id != UNKNOWN)
    }

    /// The row of an id.
    pub fn row(&self, id: i64) -> Option<u32> {
        self.rows.get(&id).copied()
    }

    /// The id of a row.
    pub fn id(&self, row: u32) -> Option<i64> {
        self.entries.get(row as usize).map(|entry| entry.id).filter(|id| *id != UNKNOWN)
    }

    /// Counts the ids of a step, and after every [`interval`](Options::interval) steps admits and evicts ids. Returns the rows that ids
    /// took, in the order in which they took them.
    pub fn step(&mut self, runs: &[Run]) -> Vec<Placed> {
        self.steps += 1;
        let last = saturated(self.steps);
        let known = runs.iter().filter(|(id, _)| *id != UNKNOWN);
        self.window.extend(known.map(|&(id, count)| Entry { id, count, last }));
        match self.steps.is_multiple_of(u64::from(self.options.interval.max(1))) {
            true => self.admit(),
            false => vec![],
        }
    }

    /// The rows that other ids have now than at the last call, ascending, for [`Rows::apply`](crate::Rows::apply); none at the first call,
    /// with which recording begins.
    pub fn changes(&mut self) -> Vec<Placed> {
        let changed = self.changed.replace(BTreeMap::new());
        let placed = |(row, evicted)| Some(Placed { row, id: self.id(row)?, evicted });
        changed.into_iter().flatten().filter_map(placed).filter(|placed| placed.evicted != Some(placed.id)).collect()
    }

    fn admit(&mut self) -> Vec<Placed> {
        let mut seen = merged(std::mem::take(&mut self.window));
        if let Admission::Filter(threshold) = self.options.admission {
            threshold.apply(&mut seen, self.steps);
        }
        let mut new = vec![];
        for mut own in seen {
            match self.rows.get(&own.id).and_then(|row| self.entries.get_mut(*row as usize)) {
                Some(entry) => {
                    entry.count = entry.count.saturating_add(own.count);
                    entry.last = own.last;
                }
                None => new.extend(self.is_admitted(&mut own).then_some(own)),
            }
        }
        let placed = self.place(new);
        self.forget();
        placed
    }

    /// True if an id occurred often enough, which counts all of its occurrences.
    fn is_admitted(&mut self, own: &mut Entry) -> bool {
        let Admission::Count { threshold, .. } = self.options.admission else { return true };
        let count = self.waiting.entry(own.id).or_insert(0);
        *count = count.saturating_add(own.count.into());
        own.count = saturated(*count);
        *count >= threshold
    }

    /// Gives rows to new ids, those with the highest scores first: free rows, then those of ids with lower scores.
    fn place(&mut self, new: Vec<Entry>) -> Vec<Placed> {
        let eviction = self.options.eviction;
        let mut scored: Vec<(u64, Entry)> =
            new.into_iter().map(|entry| (eviction.score(&entry, self.steps), entry)).collect();
        scored.sort_unstable_by_key(|(score, entry)| (Reverse(*score), entry.id));
        if !eviction.is_steady() {
            self.ranking.clear();
        }
        let (mut placed, count) = (vec![], scored.len());
        for (score, entry) in scored {
            let (row, evicted) = match self.free_row() {
                Some(row) => (row, None),
                None => match self.ranking.lowest(count, eviction, &self.entries, self.steps) {
                    Some((lowest, row)) if lowest < score => (row, self.id(row)),
                    _ => break,
                },
            };
            if let Some(own) = self.entries.get_mut(row as usize) {
                *own = entry;
            }
            if let Some(changed) = &mut self.changed {
                changed.entry(row).or_insert(evicted);
            }
            if let Some(id) = evicted {
                self.rows.remove(&id);
            }
            self.rows.insert(entry.id, row);
            self.waiting.remove(&entry.id);
            placed.push(Placed { row, id: entry.id, evicted });
        }
        placed
    }

    fn free_row(&mut self) -> Option<u32> {
        if let Some(row) = self.holes.pop() {
            return Some(row);
        }
        let row = u32::try_from(self.entries.len()).ok().filter(|row| *row < self.options.rows)?;
        self.entries.push(FREE);
        Some(row)
    }

    /// Forgets the ids that occurred least often, if too many wait for admission.
    fn forget(&mut self) {
        let Admission::Count { capacity, .. } = self.options.admission else { return };
        if self.waiting.len() <= capacity {
            return;
        }
        let mut all: Vec<(Reverse<u64>, i64)> = self.waiting.iter().map(|(id, count)| (Reverse(*count), *id)).collect();
        // Room for later ids, so that not every step selects.
        all.select_nth_unstable(capacity - capacity / 8);
        for (_, id) in all.drain(capacity - capacity / 8..) {
            self.waiting.remove(&id);
        }
    }
}

/// The ids of several steps, ascending, each once.
fn merged(mut all: Vec<Entry>) -> Vec<Entry> {
    all.sort_unstable_by_key(|entry| (entry.id, entry.last));
    all.dedup_by(|later, own| {
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
    fn apply(self, seen: &mut Vec<Entry>, step: u64) {
        let total: f64 = seen.iter().map(|entry| f64::from(entry.count)).sum();
        let mean = total / seen.len().max(1) as f64;
        seen.retain(|entry| match self {
            Self::Above(least) => f64::from(entry.count) > least,
            Self::AboveMean(factor) => f64::from(entry.count) > mean * factor,
            Self::Probability(probability) => 1.0 - (1.0 - probability).powf(entry.count.into()) > unit(entry.id, step),
        });
    }
}

pub(crate) fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
