//! Maps from raw ids to rows.
//!
//! The preparer runs ahead of the trainer and updates the maps. The trainer applies each map step to its own copy of the states.

use super::{TrainError, Trainer};
use crate::GrowingTables;
use crate::step::{Initial, names};
use rewire_graph::{DType, HostTensor, Ordered};
use rewire_runtime::{Inputs, RunValue};
use rewire_tables::{IdMap, MapState, MapStep};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The map states of growing tables, after the trainer's latest step.
#[derive(Clone, Debug)]
pub(super) struct Grown {
    pub tables: Arc<[GrowingTables]>,
    pub maps: Vec<MapState>,
}

impl Grown {
    pub fn new(tables: &[GrowingTables]) -> Self {
        Self { tables: tables.into(), maps: tables.iter().map(|growing| MapState::new(growing.options)).collect() }
    }

    /// Creates maps with these states, for a preparer.
    pub fn growth(&self) -> Growth {
        let (maps, seen) = (self.maps.iter().map(IdMap::from).collect(), vec![Seen::default(); self.tables.len()]);
        Growth { tables: self.tables.clone(), maps, seen }
    }
}

/// The maps of growing tables, in a preparer.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    tables: Arc<[GrowingTables]>,
    maps: Vec<IdMap>,
    /// For each map, the ids of the step so far.
    seen: Vec<Seen>,
}

/// Ids of a step.
#[derive(Clone, Debug, Default)]
struct Seen {
    ids: Vec<i64>,
    /// For each input of a batch of this rank, the position of its first id in `ids` and `rows`.
    own: VecDeque<usize>,
    rows: Vec<u32>,
}

impl Growth {
    /// True if there are no growing tables.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Adds the raw ids of a batch to the next step. `is_own` is true if this rank runs the batch.
    pub fn count(&mut self, batch: &Inputs, is_own: bool) {
        for (growing, seen) in self.tables.iter().zip(&mut self.seen) {
            for ids in growing.inputs.iter().filter_map(|input| raw(batch, input)) {
                seen.own.extend(is_own.then_some(seen.ids.len()));
                seen.ids.extend(ids.bytes().as_chunks().0.iter().map(|id| i64::from_le_bytes(*id)));
            }
        }
    }

    /// Advances the maps by a step with the collected ids.
    pub fn step(&mut self) -> Vec<MapStep> {
        let step = |(map, seen): (&mut IdMap, &mut Seen)| {
            let mut step = map.step(&seen.ids);
            seen.ids.clear();
            seen.rows = std::mem::take(&mut step.rows);
            step
        };
        self.maps.iter_mut().zip(&mut self.seen).map(step).collect()
    }

    /// Replaces the raw ids of the step's next batch by rows.
    pub fn look_up(&mut self, batch: &mut Inputs) -> Result<(), TrainError> {
        for (growing, seen) in self.tables.iter().zip(&mut self.seen) {
            for input in &growing.inputs {
                let Some(shape) = batch.get(input).filter(is_raw).map(|ids| ids.shape().to_vec()) else { continue };
                let first = seen.own.pop_front().unwrap_or(seen.rows.len());
                let rows = seen.rows.get(first..first + shape.iter().product::<usize>());
                debug_assert!(rows.is_some(), "the ids of `{input}` are not counted");
                batch.insert(input, HostTensor::u32(shape, rows.unwrap_or_default())?);
            }
        }
        Ok(())
    }
}

fn is_raw(ids: &&RunValue) -> bool {
    matches!(ids, RunValue::Host(ids) if ids.dtype() == DType::I64)
}

/// The raw ids of an input; `None` if the input has rows.
fn raw<'a>(batch: &'a Inputs, input: &str) -> Option<&'a HostTensor> {
    match batch.get(input).filter(is_raw)? {
        RunValue::Host(ids) => Some(ids),
        RunValue::Device(_) => None,
    }
}

impl Trainer {
    /// The current maps of growing tables, by name.
    pub fn id_maps(&self) -> impl Iterator<Item = (&str, &MapState)> {
        self.grown.tables.iter().map(|growing| growing.name.as_str()).zip(&self.grown.maps)
    }

    /// Sets the map of a growing table, such as the map of an earlier training. Call it before the first step.
    pub fn set_id_map(&mut self, name: &str, map: MapState) {
        let mut own = self.grown.tables.iter().zip(&mut self.grown.maps);
        if let Some((_, own)) = own.find(|(growing, _)| growing.name == name) {
            *own = map;
        }
    }

    /// Applies a step of the maps: resets the rows of new ids, and their moments, to initial values.
    pub(super) fn grow(&mut self, steps: &[MapStep]) -> Result<(), TrainError> {
        let tables = self.grown.tables.clone();
        for (place, (growing, step)) in tables.iter().zip(steps).enumerate() {
            let Some(map) = self.grown.maps.get_mut(place) else { continue };
            if map.steps() + 1 != step.number {
                let (name, expected) = (growing.name.clone(), map.steps() + 1);
                return Err(TrainError::Order { name, expected, actual: step.number });
            }
            map.apply(step);
            let mut rows: Vec<u32> = step.placed.iter().map(|placed| placed.row).collect();
            rows.sort_unstable();
            if rows.is_empty() {
                continue;
            }
            for table in &growing.tables {
                self.reset_rows(growing, table, &rows)?;
            }
        }
        Ok(())
    }

    fn reset_rows(&mut self, growing: &GrowingTables, table: &str, rows: &[u32]) -> Result<(), TrainError> {
        let moments = self.moments.iter().filter(|moment| moment.parameter == table).map(|moment| moment.state.clone());
        for name in std::iter::once(table.to_owned()).chain(moments).collect::<Vec<_>>() {
            let Some(state) = self.states.get(&name) else { continue };
            let shape: Vec<usize> = std::iter::once(rows.len()).chain(state.shape.iter().skip(1).copied()).collect();
            let values = match &state.initial {
                Initial::Constant(value) => HostTensor::generate(shape, || *value)?,
                Initial::Parameter(_) | Initial::Kept(_) => HostTensor::f32(shape, &growing.initial.rows(table, rows))?,
            };
            match &mut self.ranks {
                Some(ranks) => ranks.set_rows(&name, rows, &values)?,
                None => self.session.set_state_rows(&name, rows, &values)?,
            }
        }
        Ok(())
    }

    /// The current maps of growing tables, as tensors by state name.
    pub fn ids(&self) -> BTreeMap<String, HostTensor> {
        let parts = |(name, map): (&str, &MapState)| {
            let tensor = |(part, values): (&str, Vec<i64>)| (names::ids(name, part), HostTensor::vector(&values));
            map.save().into_iter().map(tensor).collect::<Vec<_>>()
        };
        self.id_maps().flat_map(parts).ordered_map()
    }

    /// Loads the states of maps from tensors by state name.
    pub(super) fn saved_ids(&self, states: &impl Fn(&str) -> Option<HostTensor>) -> Result<Grown, TrainError> {
        let load = |growing: &GrowingTables| {
            let part = |part: &str| states(&names::ids(&growing.name, part))?.values();
            let failed = |source| TrainError::Ids { name: growing.name.clone(), source };
            MapState::load(growing.options, part).map_err(failed)
        };
        let maps = self.grown.tables.iter().map(load).collect::<Result<_, _>>()?;
        Ok(Grown { tables: self.grown.tables.clone(), maps })
    }
}
