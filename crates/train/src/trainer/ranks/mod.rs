//! The parameters and moments of a rank, and their updates together with the other ranks.

mod exchange;
mod held;
mod step;
mod tables;
mod values;

pub use held::Held;

use super::{InitialValues, TrainError, sharding};
use crate::step::{Block, KeptMoment, RankStep, ResidentTable, names};
use crate::{Objective, TrainConfig};
use rewire_distributed::{Buffers, Collectives, all_gather_of};
use rewire_graph::{DType, HostTensor};
use rewire_runtime::{DeviceTensor, RunError, RunValue, Session};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tables::{Column, Rows};

/// The parameters and moments of a rank.
#[derive(Debug)]
pub(super) struct Ranks {
    pub group: Arc<dyn Collectives>,
    /// Updates dense parameters and resident tables, which are states of the session, and rows of tables on the host.
    update: Session,
    /// Tables on the host, divided ones first.
    tables: Vec<Rows>,
    resident: Vec<ResidentTable>,
    /// Parameters that are not tables.
    dense: Vec<String>,
    blocks: Vec<Block>,
    /// Device memory for the sums of blocks, by name; empty without a device.
    memory: BTreeMap<String, DeviceTensor>,
    /// Device memory for the row gradients of all ranks, by name.
    gathered: BTreeMap<String, DeviceTensor>,
    /// Memory of exchanged gradients.
    buffers: Buffers,
    /// The sums of blocks before the first batch of a step; empty for steps of one batch.
    zeros: Vec<(String, RunValue)>,
    /// Number of reported outputs, which come first in the first block.
    reported: usize,
    /// States that the update does not change.
    held: BTreeMap<String, HostTensor>,
    /// States that the model sets.
    kept: Vec<String>,
    /// The input with one row per example: see [`Objective::examples`].
    examples: Option<String>,
}

impl Ranks {
    /// Sets all states to their initial values.
    pub fn new(
        step: &RankStep,
        (objective, config): (&Objective, &TrainConfig),
        update: Session,
        initial: &dyn InitialValues,
        group: Arc<dyn Collectives>,
    ) -> Result<Self, TrainError> {
        let tables = step.tables.iter().map(|table| {
            let sharding = sharding(objective, config, &table.name);
            Rows::new(table, &step.states, sharding, (group.as_ref(), config.tables_folder.as_deref()))
        });
        let mut tables = tables.collect::<Result<Vec<_>, _>>()?;
        // Ranks exchange rows in this order, whether they have devices or not.
        tables.sort_by_key(|table| !table.is_divided());
        let mut ranks = Self {
            blocks: step.blocks.clone(),
            memory: BTreeMap::new(),
            gathered: BTreeMap::new(),
            buffers: Buffers::default(),
            update,
            tables,
            resident: step.resident.clone(),
            dense: step.dense.clone(),
            zeros: vec![],
            reported: step.reported.len(),
            held: BTreeMap::new(),
            kept: step.kept.clone(),
            examples: objective.examples.clone(),
            group,
        };
        let memory = ranks.zeros()?.into_iter().filter_map(|(name, zeros)| match zeros {
            RunValue::Device(tensor) => Some((name, tensor)),
            RunValue::Host(_) => None,
        });
        ranks.memory = memory.collect();
        if config.step_batches() > 1 {
            ranks.zeros = ranks.zeros()?;
        }
        for (name, state) in &step.states {
            match ranks.tables.iter_mut().find_map(|table| Some((table.column(name)?, table))) {
                Some((column, table)) => table.begin(column, state, initial, ranks.group.as_ref())?,
                None => ranks.set(name, state.begin(initial)?)?,
            }
        }
        Ok(ranks)
    }

    /// Sums of blocks without a batch, on the device if there is one.
    fn zeros(&self) -> Result<Vec<(String, RunValue)>, TrainError> {
        let zero = |(position, block): (usize, &Block)| {
            let zeros = self.placed(HostTensor::zeros(DType::F32, vec![block.len])?)?;
            Ok((names::sum(&names::block(position)), zeros))
        };
        self.blocks.iter().enumerate().map(zero).collect()
    }

    /// A tensor on the device, if there is one.
    fn placed(&self, tensor: HostTensor) -> Result<RunValue, RunError> {
        match self.update.gpu() {
            Some(_) => self.update.upload(&tensor).map(RunValue::Device),
            None => Ok(RunValue::Host(tensor)),
        }
    }

    /// True if the rows of some table are divided among ranks.
    pub fn is_divided(&self) -> bool {
        self.group.ranks() > 1 && self.tables.iter().any(Rows::is_divided)
    }

    /// True if all elements of a state are finite on all ranks. All ranks must call it.
    pub fn is_finite(&self, name: &str) -> Result<bool, TrainError> {
        let Some((_, column)) = self.column(name) else {
            return Ok(self.get(name)?.first_non_finite().is_none());
        };
        let all = all_gather_of(self.group.as_ref(), &[u8::from(column.is_finite())])?;
        Ok(all.concat().iter().all(|is_finite| *is_finite == 1))
    }

    /// Passes a state to `take` in blocks of rows, on rank 0. All ranks must call it.
    pub fn stream(&self, name: &str, take: &mut dyn FnMut(&HostTensor) -> io::Result<()>) -> Result<(), TrainError> {
        match self.column(name) {
            Some((table, column)) => table.stream(column, self.group.as_ref(), take),
            None if self.group.rank() == 0 => take(&self.get(name)?).map_err(TrainError::Write),
            None => Ok(()),
        }
    }

    /// The rows of divided tables and their moments on this rank.
    pub fn held<'a>(&'a self, moments: &'a [KeptMoment]) -> Vec<Held<'a>> {
        let tables = self.tables.iter().filter(|table| table.is_divided());
        tables.flat_map(|table| table.columns.iter().map(|column| Held::new(table, column, self, moments))).collect()
    }

    /// The table with a state, and its column for the state.
    fn column(&self, name: &str) -> Option<(&Rows, &Column)> {
        self.tables.iter().find_map(|table| Some((table, table.columns.get(table.column(name)?)?)))
    }

    /// Sets a state; for a table, only the rows of this rank.
    pub fn set(&mut self, name: &str, tensor: HostTensor) -> Result<(), TrainError> {
        for table in &mut self.tables {
            if let Some(column) = table.column(name) {
                return table.set(column, &tensor, self.group.as_ref());
            }
        }
        match self.update.plan().states().contains_key(name) {
            true => self.update.set_state(name, tensor)?,
            false => drop(self.held.insert(name.to_owned(), tensor)),
        }
        Ok(())
    }

    /// Replaces the held ones of the ascending `rows` in a table's state.
    pub fn set_rows(&mut self, name: &str, rows: &[u32], values: &HostTensor) -> Result<(), TrainError> {
        if self.update.plan().states().contains_key(name) {
            return Ok(self.update.set_state_rows(name, rows, values)?);
        }
        for table in &mut self.tables {
            if let Some(column) = table.column(name) {
                table.replace_held(column, rows, &values.to_f32(), self.group.as_ref())?;
            }
        }
        Ok(())
    }

    /// The ascending `rows` of a table. All ranks must call it.
    pub fn rows_of(&self, name: &str, rows: &[u32]) -> Result<HostTensor, TrainError> {
        let Some(table) = self.tables.iter().find(|table| table.name == name) else {
            return Ok(self.update.state_rows(name, rows)?);
        };
        let (values, _) = table.look_up(rows, self.group.as_ref())?;
        Ok(HostTensor::f32(table.shape(rows.len()), &values)?)
    }

    /// A whole state. All ranks must call it.
    pub fn get(&self, name: &str) -> Result<HostTensor, TrainError> {
        if let Some((table, column)) = self.column(name) {
            return table.whole(column, self.group.as_ref());
        }
        match self.held.get(name) {
            Some(tensor) => Ok(tensor.clone()),
            None => Ok(self.update.state(name)?),
        }
    }
}
