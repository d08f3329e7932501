use super::TrainError;
use super::growth::Growth;
use crate::step::{Lookup, names};
use rewire_graph::{HostTensor, TensorSizeError, Type};
use rewire_runtime::{Inputs, RunValue, Session};
use rewire_tables::MapStep;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The batches of a step, with their sorted indices.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) batches: Vec<Inputs>,
    pub(super) epoch: u64,
    /// The chunk of each batch, for a step of several ranks. A chunk has at most one batch per rank.
    pub(super) chunks: Vec<usize>,
    pub(super) chunk_count: usize,
    /// The steps of the maps of growing tables.
    pub(super) grown: Vec<MapStep>,
}

impl Prepared {
    /// Sets the epoch of the batches, from 0, for learning rates that depend on it.
    #[must_use]
    pub fn of_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// Sets the chunks of the batches. The other batches of a chunk belong to other ranks.
    pub(super) fn of_chunks(self, chunks: Vec<usize>, chunk_count: usize) -> Self {
        Self { chunks, chunk_count, ..self }
    }

    /// The distinct rows of a lookup in all batches.
    pub(super) fn rows(&self, lookup: Option<&Lookup>) -> Vec<u32> {
        let first = self.batches.first().zip(lookup);
        let rows = first.and_then(|(batch, lookup)| match batch.get(&lookup.rows())? {
            RunValue::Host(rows) => rows.values(),
            RunValue::Device(_) => None,
        });
        debug_assert!(rows.is_some() || self.batches.is_empty(), "a batch has no rows");
        rows.unwrap_or_default()
    }
}

/// Replaces raw ids by rows and sorts the indices of batches. It can run concurrently with steps.
#[derive(Debug)]
pub struct Preparer {
    session: Session,
    lookups: Arc<[Lookup]>,
    row_sums: Arc<BTreeMap<String, (usize, Type)>>,
    growth: Growth,
}

/// An index, sorted by row.
struct Sorted {
    /// The row at each sorted position, ascending.
    rows: Vec<usize>,
    /// The original positions.
    order: Vec<u32>,
    /// The number of leading positions with trained rows.
    trained: usize,
    /// The shapes of the parts of the index.
    shapes: Vec<Vec<usize>>,
}

impl Preparer {
    pub(super) fn new(
        session: Session,
        lookups: Arc<[Lookup]>,
        row_sums: Arc<BTreeMap<String, (usize, Type)>>,
        growth: Growth,
    ) -> Self {
        Self { session, lookups, row_sums, growth }
    }

    /// True if there are growing tables, which need the ids of all ranks.
    pub(super) fn counts(&self) -> bool {
        !self.growth.is_empty()
    }

    /// Adds the raw ids of a batch to the next step of growing tables. `is_own` is true if this rank runs the batch.
    pub(super) fn count(&mut self, batch: &Inputs, is_own: bool) {
        self.growth.count(batch, is_own);
    }

    /// Prepares the batches of a step.
    ///
    /// # Errors
    /// [`TrainError::Run`] names an input that is missing or does not match its declaration.
    pub fn prepare(&mut self, batches: Vec<Inputs>) -> Result<Prepared, TrainError> {
        batches.iter().for_each(|batch| self.count(batch, true));
        self.prepare_counted(batches)
    }

    /// [`Preparer::prepare`] for batches whose ids, and the ids of other ranks, were passed to [`Preparer::count`].
    pub(super) fn prepare_counted(&mut self, mut batches: Vec<Inputs>) -> Result<Prepared, TrainError> {
        let grown = self.growth.step();
        batches.iter_mut().try_for_each(|batch| self.growth.look_up(batch))?;
        let mut sorted = vec![];
        for batch in &batches {
            sorted.push(self.sort(batch)?);
        }
        for (position, lookup) in self.lookups.iter().enumerate() {
            let parts: Vec<&Sorted> = sorted.iter().filter_map(|all| all.get(position)).collect();
            let rows = rows_of(lookup, &parts);
            for (batch, part) in batches.iter_mut().zip(&parts) {
                batch.insert(lookup.order(), HostTensor::vector(part.order.get(..part.trained).unwrap_or_default()));
                batch.insert(lookup.lengths(), HostTensor::lengths(&part.lengths(&rows)));
                if lookup.is_sparse {
                    let ids: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
                    batch.insert(lookup.rows(), HostTensor::vector(&ids));
                }
                if lookup.is_placed {
                    for (position, place) in part.places(&rows)?.into_iter().enumerate() {
                        batch.insert(lookup.place(position), place);
                    }
                }
            }
            let sums = self.row_sums.iter().filter(|(_, (at, _))| *at == position);
            for (table, (_, ty)) in sums {
                let inner = ty.shape.iter().skip(1).filter_map(|extent| extent.as_const());
                let shape: Vec<usize> = std::iter::once(rows.len()).chain(inner).collect();
                let zeros = HostTensor::zeros(ty.dtype, shape)?;
                batches.iter_mut().take(1).for_each(|first| first.insert(names::sum(table), zeros.clone()));
            }
        }
        let (chunks, chunk_count) = ((0..batches.len()).collect(), batches.len());
        Ok(Prepared { batches, epoch: 0, chunks, chunk_count, grown })
    }

    fn sort(&mut self, batch: &Inputs) -> Result<Vec<Sorted>, TrainError> {
        if self.lookups.is_empty() {
            return Ok(vec![]);
        }
        let outputs = self.session.run(batch)?;
        let sorted = self.lookups.iter().map(|lookup| {
            let parts: Vec<&HostTensor> =
                (0..lookup.parts.len()).filter_map(|part| outputs.get(&lookup.part(part))).collect();
            if lookup.is_placed {
                check_ids(&parts, lookup.table_rows)?;
            }
            let last = lookup.table_rows.saturating_sub(1) as i64;
            Ok(Sorted::new(&parts, last, lookup.untrained))
        });
        sorted.collect()
    }
}

/// Checks that ids are below `rows`. Runs cannot check them, since they receive positions among distinct rows instead.
fn check_ids(parts: &[&HostTensor], rows: usize) -> Result<(), TrainError> {
    let mut ids = parts.iter().flat_map(|part| part.to_i64());
    let wrong = ids.find(|&id| usize::try_from(id).map_or(true, |id| id >= rows));
    wrong.map_or(Ok(()), |id| Err(TrainError::Id { id, rows }))
}

/// The rows to sum: all, or the distinct rows of all batches.
fn rows_of(lookup: &Lookup, parts: &[&Sorted]) -> Vec<usize> {
    if !lookup.is_sparse {
        return (0..lookup.table_rows).collect();
    }
    // Positions may refer to any row that occurs, trained or not.
    let count = |part: &Sorted| if lookup.is_placed { part.rows.len() } else { part.trained };
    let mut rows: Vec<usize> = parts.iter().flat_map(|part| part.rows.iter().take(count(part)).copied()).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

impl Sorted {
    /// Sorts the concatenated parts of an index. Rows are clamped to `0..=last`. The last row may be `untrained`.
    fn new(parts: &[&HostTensor], last: i64, untrained: Option<usize>) -> Self {
        let index = parts.iter().flat_map(|part| part.to_i64()).map(|row| row.clamp(0, last) as usize);
        let mut sorted: Vec<(usize, u32)> = index.zip(0..).collect();
        sorted.sort_unstable();
        let (rows, order): (Vec<usize>, Vec<u32>) = sorted.into_iter().unzip();
        let trained = untrained.map_or(rows.len(), |untrained| rows.partition_point(|row| *row < untrained));
        Self { rows, order, trained, shapes: parts.iter().map(|part| part.shape().to_vec()).collect() }
    }

    /// For each part of the index, the positions of its rows in the ascending list `rows`.
    fn places(&self, rows: &[usize]) -> Result<Vec<HostTensor>, TensorSizeError> {
        let mut places = vec![0; self.rows.len()];
        for (row, position) in self.rows.iter().zip(&self.order) {
            places[*position as usize] = rows.partition_point(|own| own < row) as u32;
        }
        let mut rest = places.as_slice();
        let part = |shape: &Vec<usize>| {
            let (own, others) = rest.split_at(shape.iter().product());
            rest = others;
            HostTensor::u32(shape.clone(), own)
        };
        self.shapes.iter().map(part).collect()
    }

    /// The number of index positions for each of the ascending `rows`.
    fn lengths(&self, rows: &[usize]) -> Vec<i64> {
        let mut rest = self.rows.get(..self.trained).unwrap_or_default();
        let count = |row: &usize| {
            let count = rest.iter().take_while(|own| *own == row).count();
            rest = rest.get(count..).unwrap_or(&[]);
            count as i64
        };
        rows.iter().map(count).collect()
    }
}
