//! The runs of a batch, and the model's inputs for them.

use super::Batch;
use super::batch::Group;
use super::sequence::{Capacity, Layout, TIME};
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_runtime::Inputs;
use std::ops::Range;

/// The input names of a model with their element types; lengths have no type.
pub(crate) type InputTypes = [(String, Option<DType>)];

/// One run.
#[derive(Debug, Default)]
pub(crate) struct Run<'a> {
    /// Histories to compute, each before the candidates of its sequence if the model reads both as one.
    pub histories: Vec<History<'a>>,
    pub sequences: Vec<Sequence<'a>>,
}

/// A request's history.
#[derive(Clone, Debug)]
pub(crate) struct History<'a> {
    /// Position of the request in the batch.
    pub request: usize,
    /// Its events.
    pub layout: &'a Layout,
    /// Its cache rows.
    pub kept: &'a Kept,
}

/// Some of a request's candidates.
#[derive(Clone, Debug)]
pub(crate) struct Sequence<'a> {
    /// Position of the request in the batch.
    pub request: usize,
    /// The candidates.
    pub part: Range<usize>,
    /// The cache rows of its history.
    pub kept: &'a Kept,
}

/// The cache rows of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The rows of the cache, in the order of the history.
    pub rows: Vec<u32>,
    /// The number of rows that are already computed, which precede those to compute.
    pub before: usize,
    /// The number of events of those rows.
    pub events: usize,
}

/// Without a cache.
const NOWHERE: &Kept = &Kept { rows: Vec::new(), before: 0, events: 0 };

/// The runs of a batch, in the order of its requests: sequences are batched up to `most` rows. A longer one runs alone.
pub(crate) fn runs<'a>(capacity: &Capacity, layouts: &'a [Layout], most: usize) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut rows = 0;
    for (request, layout) in layouts.iter().enumerate() {
        for part in &layout.parts {
            let more = capacity.rows_of(layout, part);
            if runs.is_empty() || (rows > 0 && rows + more > most) {
                runs.push(Run::default());
                rows = 0;
            }
            runs.last_mut().into_iter().for_each(|run| {
                run.histories.push(History { request, layout, kept: NOWHERE });
                run.sequences.push(Sequence { request, part: part.clone(), kept: NOWHERE });
            });
            rows += more;
        }
    }
    runs
}

impl Run<'_> {
    /// Candidates of all sequences.
    pub fn candidates(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.part.len()).sum()
    }

    /// The model's inputs: the values of all sequences, concatenated.
    pub fn inputs(&self, types: &InputTypes, batch: &Batch) -> Result<Inputs, TensorSizeError> {
        let mut inputs = Inputs::new();
        for (name, dtype) in types {
            // Ids are below the rows of their tables.
            let tensor = match dtype {
                None => HostTensor::lengths(&self.gather(name, batch, |value| value)),
                Some(DType::U32) => vector(&self.gather(name, batch, |id| id as u32), HostTensor::u32)?,
                Some(_) => vector(&self.gather(name, batch, |value| value), HostTensor::i64)?,
            };
            inputs.insert(name.clone(), tensor);
        }
        Ok(inputs)
    }

    /// The entries of the input `name`.
    fn gather<T>(&self, name: &str, batch: &Batch, convert: impl Fn(i64) -> T + Copy) -> Vec<T> {
        let (histories, sequences) = (self.histories.iter(), self.sequences.iter());
        let of_rows = |rows: &[u32]| rows.iter().map(|&row| convert(i64::from(row))).collect::<Vec<T>>();
        let contextual = |requests: &mut dyn Iterator<Item = usize>, name: &str| {
            let column = batch.rows().contextual.column(position(batch, Group::Contextual, name));
            requests.map(|request| convert(column.get(request).copied().unwrap_or_default())).collect()
        };
        let times = |requests: &mut dyn Iterator<Item = usize>| {
            requests.map(|request| convert(query_time(batch, request))).collect()
        };
        match name.split_once('.') {
            Some(("uih", "lengths")) => histories.map(|one| convert(one.events().count() as i64)).collect(),
            Some(("uih", "query_time")) => times(&mut histories.map(|one| one.request)),
            Some(("uih", "kept")) => histories.flat_map(|one| of_rows(one.kept.missing())).collect(),
            Some(("uih", "before.lengths")) => histories.map(|one| convert(one.kept.before as i64)).collect(),
            Some(("uih", "before")) => histories.flat_map(|one| of_rows(one.kept.present())).collect(),
            Some(("candidate", "lengths")) => sequences.map(|one| convert(one.part.len() as i64)).collect(),
            Some(("candidate", "query_time")) => times(&mut sequences.map(|one| one.request)),
            Some(("history", "lengths")) => sequences.map(|one| convert(one.kept.rows.len() as i64)).collect(),
            None if name == "history" => sequences.flat_map(|one| of_rows(&one.kept.rows)).collect(),
            Some(("contextual", name)) => contextual(&mut histories.map(|one| one.request), name),
            Some(("uih", name)) => {
                let column = position(batch, Group::History, name);
                let mut values = Vec::with_capacity(self.histories.iter().map(|one| one.layout.events()).sum());
                for one in histories {
                    let list = batch.rows().history.row(column, one.request).unwrap_or_default();
                    match one.given() {
                        Some(range) => {
                            values.extend(list.get(range).unwrap_or_default().iter().copied().map(convert));
                        }
                        None => values.extend(one.events().filter_map(|event| list.get(event).copied().map(convert))),
                    }
                }
                values
            }
            Some(("candidate", name)) => match name.strip_prefix("contextual.") {
                Some(name) => contextual(&mut sequences.map(|one| one.request), name),
                None => {
                    let mut values = Vec::with_capacity(self.candidates());
                    let column = position(batch, Group::Candidates, name);
                    for one in sequences {
                        let list = batch.rows().candidates.row(column, one.request).unwrap_or_default();
                        values.extend(list.get(one.part.clone()).unwrap_or_default().iter().copied().map(convert));
                    }
                    values
                }
            },
            _ => Vec::new(),
        }
    }
}

impl History<'_> {
    /// The events to compute, oldest first.
    fn events(&self) -> impl Iterator<Item = usize> {
        self.layout.events_in_order().skip(self.kept.events)
    }

    /// The contiguous range of these events, if they were given in order of time.
    fn given(&self) -> Option<Range<usize>> {
        let Range { start, end } = self.layout.kept;
        self.layout.order.is_none().then(|| (start + self.kept.events).min(end)..end)
    }
}

impl Kept {
    /// The computed rows.
    pub fn present(&self) -> &[u32] {
        self.rows.get(..self.before).unwrap_or_default()
    }

    /// The rows to compute.
    pub fn missing(&self) -> &[u32] {
        self.rows.get(self.before..).unwrap_or_default()
    }
}

/// The position of a column in its group.
fn position(batch: &Batch, group: Group, name: &str) -> usize {
    batch.schema().position(group, name).unwrap_or(usize::MAX)
}

/// The time of a request, which all of its candidates share.
pub(crate) fn query_time(batch: &Batch, request: usize) -> i64 {
    let column = position(batch, Group::Candidates, TIME);
    let times = batch.rows().candidates.row(column, request).unwrap_or_default();
    times.first().copied().unwrap_or_default()
}

fn vector<T>(
    values: &[T],
    make: impl Fn(Vec<usize>, &[T]) -> Result<HostTensor, TensorSizeError>,
) -> Result<HostTensor, TensorSizeError> {
    make(vec![values.len()], values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::{batch, request};
    use rewire_runtime::RunValue;

    #[test]
    fn sequences_lie_back_to_back() {
        let all = batch(&[request(3, 4), request(0, 1)]);
        let parts = [0..2, 2..4, 0..1];
        let layouts = [
            Layout { kept: 1..3, order: Some(vec![1, 2, 0]), parts: parts[..2].to_vec() },
            Layout { kept: 0..0, order: None, parts: parts[2..].to_vec() },
        ];
        let capacity = Capacity { rows: 12, contextual: 2, rows_per_event: 1, candidate_room: 1 };
        let spec = |name: &str, dtype| (name.to_owned(), dtype);
        let specs = [
            spec("uih.lengths", None),
            spec("candidate.lengths", None),
            spec("uih.timestamp", Some(DType::I64)),
            spec("candidate.item", Some(DType::U32)),
            spec("candidate.timestamp", Some(DType::I64)),
            spec("contextual.age", Some(DType::U32)),
        ];
        let all_in_one = runs(&capacity, &layouts, 100);
        assert_eq!(all_in_one.len(), 1);
        let inputs = all_in_one[0].inputs(&specs, &all).unwrap();
        let expect = |name: &str, values: &[i64]| match inputs.get(name) {
            Some(RunValue::Host(tensor)) => assert_eq!(tensor.to_i64(), values, "{name}"),
            _ => panic!("{name} is missing"),
        };
        expect("uih.lengths", &[2, 2, 0]);
        expect("candidate.lengths", &[2, 2, 1]);
        expect("uih.timestamp", &[102, 100, 102, 100]);
        expect("candidate.item", &[0, 1, 2, 3, 0]);
        expect("contextual.age", &[1, 1, 1]);
        expect("candidate.timestamp", &[0; 5]);
        // Sequences of 6, 6 and 3 rows.
        let requests = |most| {
            let runs = runs(&capacity, &layouts, most);
            runs.iter().map(|run| run.sequences.iter().map(|one| one.request).collect()).collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(requests(12), [vec![0, 0], vec![1]]);
        assert_eq!(requests(11), [vec![0], vec![0, 1]]);
        assert_eq!(requests(1), [[0], [0], [1]]);
    }
}
