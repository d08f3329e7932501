//! The state of a map, without an index of its ids: for checkpoints and files.

use crate::changes::MapChanges;
use crate::{MapError, MapStep, Options, UNKNOWN};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The id of each row; [`UNKNOWN`] for free rows.
const IDS: &str = "ids";
/// The count of each row's id.
const COUNTS: &str = "counts";
/// The last step in which each row's id occurred.
const LAST: &str = "last";
/// The number of steps.
const STEPS: &str = "steps";
/// Triples `(id, count, step)` since the last admission.
const WINDOW: &str = "window";
/// Pairs `(id, count)` of ids that wait for admission.
const WAITING: &str = "waiting";

/// The id of a row, with its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub id: i64,
    pub count: u32,
    pub last: u32,
}

/// The entry of a free row.
pub(crate) const FREE: Entry = Entry { id: UNKNOWN, count: 0, last: 0 };

/// The state of an [`IdMap`](crate::IdMap) after a step: ids by row with their use, and ids that wait for admission.
#[derive(Clone, Debug)]
pub struct MapState {
    pub(crate) options: Options,
    /// One entry per row, up to the highest row ever assigned.
    pub(crate) entries: Vec<Entry>,
    /// The ids of the steps since the last admission.
    pub(crate) window: Vec<Entry>,
    /// The counts of ids that wait for admission.
    pub(crate) waiting: HashMap<i64, u64, RandomState>,
    pub(crate) steps: u64,
}

impl MapState {
    /// The names of the arrays of [`MapState::save`].
    pub const PARTS: [&'static str; 6] = [IDS, COUNTS, LAST, STEPS, WINDOW, WAITING];

    /// The state of a map without ids.
    pub fn new(options: Options) -> Self {
        Self { options, entries: vec![], window: vec![], waiting: HashMap::default(), steps: 0 }
    }

    /// The options of the map.
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

    /// The id of a row.
    pub fn id(&self, row: u32) -> Option<i64> {
        self.entries.get(row as usize).map(|entry| entry.id).filter(|id| *id != UNKNOWN)
    }

    /// Applies a step of the map that had this state before it.
    pub fn apply(&mut self, step: &MapStep) {
        self.steps = step.number;
        for placed in &step.placed {
            self.set(placed.row, Entry { id: placed.id, ..FREE });
        }
        for used in &step.used {
            if let Some(entry) = self.entries.get_mut(used.row as usize) {
                (entry.count, entry.last) = (used.count, used.last);
            }
        }
        match &step.window {
            Some(window) => self.window.extend(window),
            None => self.window.clear(),
        }
        step.waiting.iter().for_each(|(id, count)| self.wait(*id, *count));
    }

    /// Applies changes recorded since this state. They omit ids that wait for admission, whose counts restart at 0.
    ///
    /// # Errors
    /// [`MapError`] for changes of another state. The state is then undefined.
    pub fn change(&mut self, changes: &MapChanges) -> Result<(), MapError> {
        let most = self.options.rows;
        let beyond = |row: u32| MapError::Row { row, rows: most };
        for placed in &changes.placed {
            if placed.row >= most {
                return Err(beyond(placed.row));
            }
            if placed.id == UNKNOWN || self.id(placed.row) != placed.evicted {
                return Err(MapError::Other { row: placed.row });
            }
            self.set(placed.row, Entry { id: placed.id, ..FREE });
        }
        for used in &changes.used {
            let entry = self.entries.get_mut(used.row as usize).ok_or_else(|| beyond(used.row))?;
            (entry.count, entry.last) = (used.count, used.last);
        }
        (self.steps, self.window) = (changes.steps, vec![]);
        self.waiting.clear();
        Ok(())
    }

    /// Replaces the entry of a row, and returns the previous one.
    pub(crate) fn set(&mut self, row: u32, entry: Entry) -> Entry {
        let row = row as usize;
        if row >= self.entries.len() {
            self.entries.resize(row + 1, FREE);
        }
        std::mem::replace(&mut self.entries[row], entry)
    }

    /// Sets the count of an id that waits for admission; 0 removes it.
    pub(crate) fn wait(&mut self, id: i64, count: u64) {
        match count {
            0 => drop(self.waiting.remove(&id)),
            count => drop(self.waiting.insert(id, count)),
        }
    }

    /// Checks that no id has two rows, after [changes](MapState::change) of an untrusted file.
    ///
    /// # Errors
    /// [`MapError::Twice`].
    pub fn check(&self) -> Result<(), MapError> {
        let mut ids: Vec<i64> = self.ids().map(|(id, _)| id).collect();
        ids.sort_unstable();
        match ids.array_windows().find(|[a, b]| a == b) {
            Some([id, _]) => Err(MapError::Twice { id: *id }),
            None => Ok(()),
        }
    }

    /// The whole state as arrays, by name. Equal states give equal arrays.
    pub fn save(&self) -> Vec<(&'static str, Vec<i64>)> {
        let of = |value: fn(&Entry) -> i64| self.entries.iter().map(value).collect();
        let triples = self.window.iter().flat_map(|entry| [entry.id, entry.count.into(), entry.last.into()]);
        let mut waiting: Vec<(i64, i64)> =
            self.waiting.iter().map(|(id, count)| (*id, i64::try_from(*count).unwrap_or(i64::MAX))).collect();
        waiting.sort_unstable();
        vec![
            (IDS, of(|entry| entry.id)),
            (COUNTS, of(|entry| entry.count.into())),
            (LAST, of(|entry| entry.last.into())),
            (STEPS, vec![i64::try_from(self.steps).unwrap_or(i64::MAX)]),
            (WINDOW, triples.collect()),
            (WAITING, waiting.into_iter().flat_map(|(id, count)| [id, count]).collect()),
        ]
    }

    /// The state of saved arrays, by name.
    ///
    /// # Errors
    /// [`MapError`] names the array that is missing or invalid.
    pub fn load(options: Options, part: impl Fn(&str) -> Option<Vec<i64>>) -> Result<Self, MapError> {
        let part = |name: &'static str| part(name).ok_or(MapError::Missing { part: name });
        let (ids, counts, last) = (part(IDS)?, part(COUNTS)?, part(LAST)?);
        if ids.len() > options.rows as usize {
            let expected = format!("at most {}, the rows of the table", options.rows);
            return Err(MapError::Length { part: IDS, expected, actual: ids.len() });
        }
        for (part, values) in [(COUNTS, &counts), (LAST, &last)] {
            check_length(part, values, ids.len())?;
        }
        let mut state = Self::new(options);
        let steps = part(STEPS)?;
        check_length(STEPS, &steps, 1)?;
        state.steps = steps.iter().map(|steps| word(STEPS, *steps)).sum::<Result<u32, _>>()?.into();
        for ((id, count), last) in ids.into_iter().zip(counts).zip(last) {
            let entry = Entry { id, count: word(COUNTS, count)?, last: word(LAST, last)? };
            state.entries.push(if id == UNKNOWN { FREE } else { entry });
        }
        state.check()?;
        for [id, count, last] in chunks::<3>(WINDOW, &part(WINDOW)?)? {
            state.window.push(Entry { id, count: word(WINDOW, count)?, last: word(WINDOW, last)? });
        }
        for [id, count] in chunks::<2>(WAITING, &part(WAITING)?)? {
            let count = u64::try_from(count).map_err(|_| MapError::Value { part: WAITING, actual: count })?;
            state.wait(id, count);
        }
        Ok(state)
    }
}

fn check_length(part: &'static str, values: &[i64], expected: usize) -> Result<(), MapError> {
    let expected = (values.len() != expected).then(|| expected.to_string());
    expected.map_or(Ok(()), |expected| Err(MapError::Length { part, expected, actual: values.len() }))
}

fn chunks<const N: usize>(part: &'static str, values: &[i64]) -> Result<Vec<[i64; N]>, MapError> {
    match values.as_chunks::<N>() {
        (chunks, []) => Ok(chunks.to_vec()),
        _ => Err(MapError::Length { part, expected: format!("a multiple of {N}"), actual: values.len() }),
    }
}

fn word(part: &'static str, value: i64) -> Result<u32, MapError> {
    u32::try_from(value).map_err(|_| MapError::Value { part, actual: value })
}
