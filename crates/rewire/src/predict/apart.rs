//! Inputs of plans that compute histories separately from the candidates that attend to them.

use super::{Column, EncodeError};
use crate::package::PackageError;
use crate::rank::Kept;
use rewire_families::{HISTORIES, Histories, Interface};
use rewire_features::Features;
use rewire_graph::{HostTensor, Ordered};
use rewire_graph_rewrite::plan::Plan;
use rewire_runtime::hash;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// The input with the times of requests, and the suffix of the inputs with the times of histories.
const TIME: &str = "candidate.query_time";

/// Maps rows of a table to the inputs of a plan of [`rewire_families::trace_cached`].
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    histories: Histories,
    /// The features of histories.
    kept: Vec<String>,
    /// The features of requests.
    requests: Vec<String>,
    /// True if the cached values of a history depend on the time of the request.
    reads_time: bool,
}

/// A row of a table whose history is in the cache.
pub(crate) struct Placed<'a> {
    pub row: usize,
    /// Tokens of its history by channel.
    pub tokens: &'a [usize],
    pub kept: &'a Kept,
}

impl<'a> Placed<'a> {
    /// Rows with their tokens and cache positions; rows without a position are left out.
    pub fn all(rows: Range<usize>, tokens: &'a [Vec<usize>], kept: &'a [Kept]) -> Vec<Self> {
        rows.zip(tokens).zip(kept).map(|((row, tokens), kept)| Self { row, tokens, kept }).collect()
    }
}

/// The names of the inputs of a channel: times of histories, their rows in the cache, and the cache rows that requests
/// read, with their number.
fn inputs_of(channel: &str) -> [String; 4] {
    ["query_time", "kept", "cached.lengths", "cached"].map(|input| format!("{channel}.{input}"))
}

impl Apart {
    /// The layout of a plan with states.
    pub fn new(interface: &Interface, plan: &Plan) -> Result<Self, PackageError> {
        let histories = interface.histories.clone();
        let histories = histories.ok_or_else(|| {
            PackageError::part("plan", "has states, which the configuration's model has not".to_owned())
        })?;
        let inputs: HashSet<&str> = plan.inputs().map(|input| input.name).collect();
        let mut requests = interface.columns(inputs.iter().copied());
        let reads_time = histories.channels.iter().any(|channel| inputs.contains(&*inputs_of(&channel.name)[0]));
        if (reads_time || inputs.contains(TIME)) && !requests.contains(&histories.time) {
            requests.push(histories.time.clone());
        }
        let kept = interface.columns(inputs.iter().filter_map(|input| input.strip_prefix(HISTORIES)));
        Ok(Self { histories, kept, requests, reads_time })
    }

    /// The columns that the plan reads.
    pub fn columns(&self) -> Vec<String> {
        let counted = self.histories.channels.iter().map(|channel| &channel.feature);
        let all: BTreeSet<&String> = self.kept.iter().chain(&self.requests).chain(counted).ordered_set();
        all.into_iter().cloned().collect()
    }

    /// True for an input that this type generates, in addition to those of features.
    pub fn is_input(&self, name: &str) -> bool {
        name == TIME
            || self.histories.channels.iter().any(|channel| inputs_of(&channel.name).iter().any(|own| own == name))
    }

    /// Tokens of the histories of rows, by row and channel.
    pub fn tokens<'c>(
        &self,
        features: &Features,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: Range<usize>,
    ) -> Result<Vec<Vec<usize>>, EncodeError> {
        let mut tokens = vec![vec![]; rows.len()];
        for channel in &self.histories.channels {
            let steps = features.steps(&channel.feature, column, rows.clone())?;
            for (own, steps) in tokens.iter_mut().zip(steps) {
                let steps = usize::try_from(steps).unwrap_or(0);
                own.push(self.histories.context + steps * channel.tokens_per_step);
            }
        }
        Ok(tokens)
    }

    /// The hash of all values that the history of a row depends on.
    pub fn hash<'c>(
        &self,
        features: &Features,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        row: usize,
    ) -> Result<u128, EncodeError> {
        let mut bytes = vec![];
        for (_, tensor) in features.encode(&self.kept, column, std::iter::once(row))? {
            bytes.extend_from_slice(&(tensor.bytes().len() as u64).to_le_bytes());
            bytes.extend_from_slice(tensor.bytes());
        }
        if self.reads_time {
            let times = self.times(features, column, std::iter::once(row))?;
            times.iter().for_each(|time| bytes.extend_from_slice(&time.to_le_bytes()));
        }
        Ok(hash(&bytes))
    }

    /// The times of the requests of rows; 0 without candidates.
    fn times<'c>(
        &self,
        features: &Features,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        rows: impl Iterator<Item = usize> + Clone,
    ) -> Result<Vec<f32>, EncodeError> {
        let time = &self.histories.time;
        let (mut values, mut lengths) = (vec![], vec![]);
        for (name, tensor) in features.encode([time], column, rows)? {
            if name.ends_with(".lengths") { lengths = tensor.to_i64() } else { values = tensor.to_f32() }
        }
        let mut values = values.as_slice();
        let time = |length: i64| {
            let (own, rest) = values.split_at_checked(usize::try_from(length).unwrap_or(0)).unwrap_or_default();
            values = rest;
            let time = if self.histories.is_ascending { own.last() } else { own.first() };
            time.copied().unwrap_or_default()
        };
        Ok(lengths.into_iter().map(time).collect())
    }

    /// The inputs of a run that computes `histories` and stores them in the cache, and predicts the candidates of `requests` from the
    /// cached histories.
    pub fn inputs<'c>(
        &self,
        features: &Features,
        column: &impl Fn(&str) -> Option<&'c Column<'c>>,
        histories: &[&Placed<'_>],
        requests: &[&Placed<'_>],
    ) -> Result<Vec<(String, HostTensor)>, EncodeError> {
        let [kept_rows, requested] = [histories, requests].map(|placed| placed.iter().map(|one| one.row));
        let mut inputs = features.encode(&self.requests, column, requested.clone())?;
        let kept = features.encode(&self.kept, column, kept_rows.clone())?;
        inputs.extend(kept.into_iter().map(|(name, tensor)| (format!("{HISTORIES}{name}"), tensor)));
        let times = HostTensor::vector(&self.times(features, column, kept_rows)?);
        for (index, channel) in self.histories.channels.iter().enumerate() {
            let tokens = |one: &Placed<'_>| one.tokens.get(index).copied().unwrap_or(0);
            let rows = |placed: &[&Placed<'_>]| {
                let rows = placed.iter().flat_map(|one| one.kept.rows.iter().copied().take(tokens(one)));
                HostTensor::vector(&rows.collect::<Vec<u32>>())
            };
            let lengths: Vec<i64> = requests.iter().map(|one| tokens(one) as i64).collect();
            let [time, kept, cached_lengths, cached] = inputs_of(&channel.name);
            inputs.push((time, times.clone()));
            inputs.push((kept, rows(histories)));
            inputs.push((cached_lengths, HostTensor::lengths(&lengths)));
            inputs.push((cached, rows(requests)));
        }
        inputs.push((TIME.to_owned(), HostTensor::vector(&self.times(features, column, requested)?)));
        Ok(inputs)
    }
}
