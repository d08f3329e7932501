//! Tables of `dynamicemb` as ids with their rows, the form of the reference's checkpoints.

use super::super::Imported;
use super::{growing_of, prefix};
use crate::rank::RankError;
use rewire_features::{DefaultRow, Growing, Origin};
use rewire_graph::HostTensor;
use rewire_graph::ParameterSpec;
use rewire_runtime::RuntimeError;
use rewire_tables::{Eviction, MapError};
use std::collections::BTreeMap;

/// The rows of the ids of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdentifiedRows {
    /// The module of the table.
    pub module: String,
    /// The table's name in it.
    pub table: String,
    /// The ids.
    pub ids: Vec<i64>,
    /// The rows of the ids, concatenated.
    pub rows: Vec<f32>,
    /// The occurrences of each id, or the step of its last occurrence: ids with low scores are evicted first.
    pub scores: Vec<i64>,
    /// The rows of the ids in the parameter, if this is known.
    pub places: Vec<u32>,
}

impl IdentifiedRows {
    /// The names that the parameter may have.
    fn parameters(&self) -> [String; 2] {
        ["embedding_bags", "embeddings"].map(|kind| format!("{}.{kind}.{}.weight", self.module, self.table))
    }

    /// The tensors of a parameter and its ids, with rows in the order of the ids.
    fn tensors(&self, known: &ParameterSpec, growing: &Growing) -> Result<BTreeMap<String, HostTensor>, RankError> {
        let (parameter, width) = (known.name.as_str(), known.shape.iter().skip(1).product());
        let (count, most) = (self.ids.len(), growing.options.rows as usize);
        let failed = |source| RankError::Ids { table: parameter.to_owned(), source };
        if count > most || self.rows.len() != count * width {
            let expected = format!("at most {most} ids with {width} values each");
            return Err(failed(MapError::Length { part: "ids", expected, actual: self.rows.len() }));
        }
        let mut values = self.rows.clone();
        values.resize(most * width, 0.0);
        let default = match growing.default {
            DefaultRow::Constant(value) => value,
            DefaultRow::Trained => 0.0,
        };
        values.resize((most + 1) * width, default);
        let (scores, step) = small(&self.scores);
        let (counts, last) = match growing.options.eviction {
            Eviction::Lfu => (scores, vec![0; count]),
            Eviction::Lru | Eviction::DistanceLfu { .. } => (vec![1; count], scores),
        };
        let prefix = prefix(parameter, Origin::Dynamic);
        let parts = [("ids", self.ids.clone()), ("counts", counts), ("last", last), ("steps", vec![step])];
        let mut all: BTreeMap<String, HostTensor> =
            parts.into_iter().map(|(part, values)| (format!("{prefix}{part}"), HostTensor::vector(&values))).collect();
        let table = HostTensor::f32([most + 1, width], &values)?.stored_as(known.dtype);
        all.insert(parameter.to_owned(), table.map_err(|error| RuntimeError::of_stored(parameter, error))?);
        Ok(all)
    }
}

/// Scores as 32-bit numbers in the same order, and the largest score.
fn small(scores: &[i64]) -> (Vec<i64>, i64) {
    let is_small = |score: &i64| (0..=i64::from(u32::MAX)).contains(score);
    if scores.iter().all(is_small) {
        return (scores.to_vec(), scores.iter().copied().max().unwrap_or(0));
    }
    let mut sorted = scores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let rank = |score: &i64| sorted.partition_point(|other| other < score) as i64;
    (scores.iter().map(rank).collect(), sorted.len() as i64)
}

impl Imported {
    /// The tensors of the model for tables of `dynamicemb`.
    ///
    /// # Errors
    /// [`RankError::Ids`] for ids or rows that do not fit the configuration.
    pub fn identified(&self, tables: &[IdentifiedRows]) -> Result<BTreeMap<String, HostTensor>, RankError> {
        let mut all = BTreeMap::new();
        for known in self.parameters() {
            let growing = growing_of(self.features(), &known.name).map(|(_, growing)| growing);
            let Some(growing) = growing.filter(|growing| growing.origin == Origin::Dynamic) else { continue };
            if let Some(rows) = tables.iter().find(|rows| rows.parameters().contains(&known.name)) {
                all.extend(rows.tensors(&known, growing)?);
            }
        }
        Ok(all)
    }
}
