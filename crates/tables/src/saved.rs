//! Maps as named arrays of integers, for files.

use crate::map::{Entry, FREE};
use crate::{IdMap, MapError, Options, UNKNOWN};

/// By row, its id, or [`UNKNOWN`] for a free row.
const IDS: &str = "ids";
/// By row, the occurrences of its id.
const COUNTS: &str = "counts";
/// By row, the step in which its id occurred last.
const LAST: &str = "last";
/// The number of steps.
const STEPS: &str = "steps";
/// Triples of an id, occurrences and a step, since the last admission.
const WINDOW: &str = "window";
/// Pairs of an id that waits for admission and its occurrences.
const WAITING: &str = "waiting";

impl IdMap {
    /// The names of the arrays.
    pub const PARTS: [&'static str; 6] = [IDS, COUNTS, LAST, STEPS, WINDOW, WAITING];

    /// The whole map as arrays, by name. Equal maps give equal arrays.
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

    /// The map of saved arrays, by name.
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
        let mut map = Self::new(options);
        let steps = part(STEPS)?;
        check_length(STEPS, &steps, 1)?;
        map.steps = steps.iter().map(|steps| word(STEPS, *steps)).sum::<Result<u32, _>>()?.into();
        for (row, ((id, count), last)) in ids.into_iter().zip(counts).zip(last).enumerate() {
            let entry = Entry { id, count: word(COUNTS, count)?, last: word(LAST, last)? };
            map.entries.push(if id == UNKNOWN { FREE } else { entry });
            match id {
                UNKNOWN => map.holes.push(row as u32),
                _ if map.rows.insert(id, row as u32).is_none() => {}
                _ => return Err(MapError::Twice { id }),
            }
        }
        map.holes.reverse();
        for triple in chunks::<3>(WINDOW, &part(WINDOW)?)? {
            let [id, count, last] = triple;
            map.window.push(Entry { id, count: word(WINDOW, count)?, last: word(WINDOW, last)? });
        }
        for [id, count] in chunks::<2>(WAITING, &part(WAITING)?)? {
            let count = u64::try_from(count).map_err(|_| MapError::Value { part: WAITING, actual: count })?;
            map.waiting.insert(id, count);
        }
        Ok(map)
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
