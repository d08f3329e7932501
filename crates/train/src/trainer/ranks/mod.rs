//! The parameters and moments of a rank on the host, and their updates together with the other ranks.

mod held;
mod step;
mod tables;
mod values;

pub use held::Held;

use super::{InitialValues, TrainError};
use crate::step::{KeptMoment, RankStep, State, gradient};
use crate::{Objective, TrainConfig};
use rewire_distributed::{Collectives, all_gather_of};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Kernel, Model, ModelOptions, Session};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tables::{Column, Rows};

/// The parameters and moments of a rank.
#[derive(Debug)]
pub(super) struct Ranks {
    pub group: Arc<dyn Collectives>,
    /// Updates dense parameters, which are states of the session, and rows of tables.
    update: Session,
    tables: Vec<Rows>,
    /// Parameters that are not tables.
    dense: Vec<Dense>,
    /// States that the update does not change.
    held: BTreeMap<String, HostTensor>,
    /// States that the model sets.
    kept: Vec<String>,
    /// The input with one row per example: see [`Objective::examples`].
    examples: Option<String>,
}

/// A dense parameter.
#[derive(Debug)]
struct Dense {
    name: String,
    gradient: String,
    shape: Vec<usize>,
}

impl Dense {
    fn new(name: &str, states: &BTreeMap<String, State>) -> Option<Self> {
        let shape = states.get(name)?.shape.clone();
        Some(Self { name: name.to_owned(), gradient: gradient(name), shape })
    }
}

impl Ranks {
    /// Loads the update, and sets all states to their initial values.
    pub fn new(
        step: &RankStep,
        objective: &Objective,
        config: &TrainConfig,
        initial: &dyn InitialValues,
        group: Arc<dyn Collectives>,
    ) -> Result<Self, TrainError> {
        let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let update = Model::load(lower(&optimize(step.update.clone())?.0)?, |_: &str| None, on_cpu)?;
        let tables = step.tables.iter().enumerate();
        let tables = tables.map(|(at, table)| {
            let sharding = objective.sharding.get(&table.name).copied().unwrap_or(config.sharding);
            Rows::new(table, at, &step.states, sharding, (group.as_ref(), config.tables_folder.as_deref()))
        });
        let mut ranks = Self {
            update: update.session(),
            tables: tables.collect::<Result<_, _>>()?,
            dense: step.dense.iter().filter_map(|name| Dense::new(name, &step.states)).collect(),
            held: BTreeMap::new(),
            kept: step.kept.clone(),
            examples: objective.examples.clone(),
            group,
        };
        for (name, state) in &step.states {
            match ranks.tables.iter_mut().find_map(|table| Some((table.column(name)?, table))) {
                Some((column, table)) => table.begin(column, state, initial, ranks.group.as_ref())?,
                None => ranks.set(name, state.begin(initial)?)?,
            }
        }
        Ok(ranks)
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
            return Ok(HostTensor::f32([0, 0], &[])?);
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
