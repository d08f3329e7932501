//! The rows of tables and moments on a rank, and their exchange with other ranks.

use super::exchange::tensor;
use super::values::Values;
use crate::config::Sharding;
use crate::step::{Lookup, RankTable, State};
use crate::trainer::initial::rows_of;
use crate::trainer::{InitialValues, TrainError};
use rewire_distributed::{Bytes, CollectiveError, Collectives, all_gather_of, all_to_all_of};
use rewire_graph::{HostTensor, TensorSizeError};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Elements per block when a table is streamed.
const PART: usize = 1 << 22;

/// A state with one or more values per row: a table or a moment.
#[derive(Debug)]
pub struct Column {
    pub state: String,
    pub shape: Vec<usize>,
    /// The elements of the rows on this rank.
    values: Values,
}

/// A table with its moments.
#[derive(Debug)]
pub struct Rows {
    pub name: String,
    /// The position of its lookup.
    pub lookup: usize,
    pub columns: Vec<Column>,
    holders: Holders,
}

/// Assigns rows to ranks.
#[derive(Clone, Debug)]
enum Holders {
    /// Every rank holds all rows.
    All,
    /// The rows of each rank.
    Parts(Vec<Range<usize>>),
}

/// Gradients of ascending rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowGradients {
    pub rows: Vec<u32>,
    /// The rows that each rank requested; it sends their gradients to this rank.
    pub asked: Vec<Vec<u32>>,
    pub values: Vec<f32>,
}

impl RowGradients {
    /// Without rows that are not trained.
    pub fn trained(mut self, lookup: &Lookup) -> Self {
        for rows in self.asked.iter_mut().chain([&mut self.rows]) {
            rows.truncate(lookup.trained(rows));
        }
        self
    }
}

impl Holders {
    /// Assigns the rows of the table at index `position`.
    fn new(sharding: Sharding, position: usize, rows: usize, ranks: usize) -> Self {
        match sharding {
            _ if ranks == 1 => Self::All,
            Sharding::DataParallel => Self::All,
            Sharding::TableWise => {
                let part = |rank| if rank == position % ranks { 0..rows } else { 0..0 };
                Self::Parts((0..ranks).map(part).collect())
            }
            Sharding::RowWise => {
                let size = rows.div_ceil(ranks);
                Self::Parts((0..ranks).map(|rank| (rank * size).min(rows)..((rank + 1) * size).min(rows)).collect())
            }
        }
    }
}

impl Column {
    /// Elements of a row.
    fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    pub fn is_finite(&self) -> bool {
        self.values.as_slice().iter().all(|value| value.is_finite())
    }

    /// The elements of rows, numbered from the first held row.
    pub fn get(&self, rows: impl Iterator<Item = usize>) -> Vec<f32> {
        let (width, values) = (self.width(), self.values.as_slice());
        rows.flat_map(|row| &values[row * width..(row + 1) * width]).copied().collect()
    }

    /// Prefetches rows from a file.
    fn read_ahead(&self, rows: impl Iterator<Item = usize>) {
        let width = self.width();
        self.values.read_ahead(rows.map(|row| row * width..(row + 1) * width));
    }
}

impl Rows {
    /// Creates the table, filled with zeros, in files if `folder` is set.
    pub fn new(
        table: &RankTable,
        states: &BTreeMap<String, State>,
        sharding: Sharding,
        (group, folder): (&dyn Collectives, Option<&Path>),
    ) -> Result<Self, TrainError> {
        let shape = |name: &String| states.get(name).map(|state| state.shape.clone());
        let rows = shape(&table.name).and_then(|shape| shape.first().copied()).unwrap_or(0);
        let holders = Holders::new(sharding, table.position, rows, group.ranks());
        let mut own = Self { name: table.name.clone(), lookup: table.lookup, columns: vec![], holders };
        let held = match &own.holders {
            Holders::All => rows,
            Holders::Parts(parts) => parts.get(group.rank()).map_or(0, Range::len),
        };
        for (state, shape) in table.states.iter().filter_map(|name| Some((name, shape(name)?))) {
            let values = Values::zeros(folder, held * shape.iter().skip(1).product::<usize>())?;
            own.columns.push(Column { state: state.clone(), shape, values });
        }
        Ok(own)
    }

    /// The shape of a tensor with `rows` rows of the table.
    pub fn shape(&self, rows: usize) -> Vec<usize> {
        let inner = self.columns.iter().take(1).flat_map(|column| column.shape.iter().skip(1).copied());
        [rows].into_iter().chain(inner).collect()
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.columns.first().map_or(0, Column::width)
    }

    /// The index of the column for a state.
    pub fn column(&self, state: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.state == state)
    }

    /// True if no rank holds all rows.
    pub fn is_divided(&self) -> bool {
        matches!(self.holders, Holders::Parts(_))
    }

    /// The rows on a rank.
    pub fn held(&self, rank: usize) -> Range<usize> {
        match &self.holders {
            Holders::All => 0..self.columns.first().and_then(|column| column.shape.first()).copied().unwrap_or(0),
            Holders::Parts(parts) => parts.get(rank).cloned().unwrap_or_default(),
        }
    }

    /// Sets a zero column to the initial values of its state. Reads only the rows of this rank.
    pub fn begin(
        &mut self,
        column: usize,
        state: &State,
        initial: &dyn InitialValues,
        group: &dyn Collectives,
    ) -> Result<(), TrainError> {
        let held = self.held(group.rank());
        self.columns.get_mut(column).map_or(Ok(()), |column| column.values.begin(state, initial, held))
    }

    /// Passes a column to `take` in blocks of rows, on rank 0. All ranks must call it.
    pub fn stream(
        &self,
        column: &Column,
        group: &dyn Collectives,
        take: &mut dyn FnMut(&HostTensor) -> io::Result<()>,
    ) -> Result<(), TrainError> {
        let holders = if self.is_divided() { group.ranks() } else { 1 };
        let rows = (PART / column.width().max(1)).max(1);
        for holder in 0..holders {
            let held = self.held(holder);
            for first in (0..held.len()).step_by(rows) {
                let part = first..(first + rows).min(held.len());
                let own = if holder == group.rank() { column.get(part.clone()) } else { vec![] };
                let own = if holder == 0 { own } else { to_first(group, own, holder)? };
                if group.rank() == 0 {
                    let part = HostTensor::f32(rows_of(&column.shape, &part), &own)?;
                    take(&part).map_err(TrainError::Write)?;
                }
            }
        }
        Ok(())
    }

    /// Sets a column from the whole state. Reads only the rows of this rank.
    pub fn set(&mut self, column: usize, whole: &HostTensor, group: &dyn Collectives) -> Result<(), TrainError> {
        let held = self.held(group.rank());
        let Some(column) = self.columns.get_mut(column) else { return Ok(()) };
        debug_assert_eq!(whole.shape(), column.shape, "`{}` is another tensor", column.state);
        column.values.set(whole, held)
    }

    /// The whole state of a column. All ranks must call it.
    pub fn whole(&self, column: &Column, group: &dyn Collectives) -> Result<HostTensor, TrainError> {
        match self.holders {
            Holders::All => Ok(column.values.tensor(&column.shape)?),
            Holders::Parts(_) => {
                let all = all_gather_of(group, column.values.as_slice())?.concat();
                Ok(HostTensor::f32(column.shape.clone(), &all)?)
            }
        }
    }

    /// The rows of the ascending `ids`, requested from the ranks that hold them. Also returns the ids that each rank requested from this
    /// one, whose gradients it will send.
    pub fn look_up(&self, ids: &[u32], group: &dyn Collectives) -> Result<(Vec<f32>, Vec<Vec<u32>>), TrainError> {
        let Some(table) = self.columns.first() else { return Ok((vec![], vec![])) };
        let Holders::Parts(parts) = &self.holders else {
            // Prefetches the moments, too, for the update.
            self.columns.iter().for_each(|column| column.read_ahead(ids.iter().map(|id| *id as usize)));
            return Ok((table.get(ids.iter().map(|id| *id as usize)), all_gather_of(group, ids)?));
        };
        let wanted: Vec<Vec<u32>> = parts.iter().map(|part| ids[places(ids, part)].to_vec()).collect();
        let asked = all_to_all_of(group, &wanted)?;
        let first = self.held(group.rank()).start;
        let answers = asked.iter().map(|ids| table.get(ids.iter().map(|id| *id as usize - first)));
        let rows = all_to_all_of(group, &answers.collect::<Vec<_>>())?.concat();
        Ok((rows, asked))
    }

    /// The sums of gradients over all ranks, in rank order, for the rows on this rank. `values` are the gradients of this rank's rows, maybe
    /// followed by others.
    pub fn sum(&self, own: &RowGradients, values: Bytes, group: &dyn Collectives) -> Result<RowGradients, TrainError> {
        let row = self.width() * size_of::<f32>();
        let part = |places: Range<usize>| values.slice(places.start * row..places.end * row);
        let values = match &self.holders {
            Holders::All => group.all_gather(part(0..values.len().min(own.rows.len() * row) / row.max(1)))?,
            Holders::Parts(parts) => {
                // A rank without a batch has no rows.
                let places = parts.iter().map(|part| places(&own.rows, part));
                group.all_to_all(places.map(part).collect())?
            }
        };
        Ok(merged(&own.asked.iter().zip(values).collect::<Vec<_>>(), self.width()))
    }

    /// The held `rows` of all columns, as tensors.
    pub fn before(&self, rows: &[u32], group: &dyn Collectives) -> Result<Vec<HostTensor>, TensorSizeError> {
        let first = self.held(group.rank()).start;
        let before = |column: &Column| {
            let shape: Vec<usize> = [rows.len()].into_iter().chain(column.shape.iter().skip(1).copied()).collect();
            tensor(shape, column.get(rows.iter().map(|row| *row as usize - first)))
        };
        self.columns.iter().map(before).collect()
    }

    /// Replaces the held ones of the ascending `rows` of a column.
    pub fn replace_held(
        &mut self,
        column: usize,
        rows: &[u32],
        values: &[f32],
        group: &dyn Collectives,
    ) -> Result<(), TrainError> {
        let width = self.columns.get(column).map_or(0, Column::width);
        let own = places(rows, &self.held(group.rank()));
        self.replace(column, &rows[own.clone()], &values[own.start * width..own.end * width], group)
    }

    /// Replaces held rows of a column.
    pub fn replace(
        &mut self,
        column: usize,
        rows: &[u32],
        values: &[f32],
        group: &dyn Collectives,
    ) -> Result<(), TrainError> {
        let first = self.held(group.rank()).start;
        let Some(column) = self.columns.get_mut(column) else { return Ok(()) };
        let width = column.width();
        let all = column.values.as_mut_slice()?;
        for (row, value) in rows.iter().zip(values.chunks_exact(width.max(1))) {
            let place = (*row as usize - first) * width;
            all[place..place + width].copy_from_slice(value);
        }
        Ok(())
    }
}

/// Sends the elements of rank `holder` to rank 0.
fn to_first(group: &dyn Collectives, own: Vec<f32>, holder: usize) -> Result<Vec<f32>, CollectiveError> {
    let mut parts = vec![vec![]; group.ranks()];
    parts[0] = own;
    Ok(all_to_all_of(group, &parts)?.swap_remove(holder))
}

/// The range of positions of the ascending `ids` whose rows are in `part`.
fn places(ids: &[u32], part: &Range<usize>) -> Range<usize> {
    let place = |row: usize| ids.partition_point(|id| (*id as usize) < row);
    place(part.start)..place(part.end)
}

/// Sums gradients by row, in the order of the parts. The rows of each part are ascending.
fn merged(parts: &[(&Vec<u32>, Bytes)], width: usize) -> RowGradients {
    let mut rows: Vec<u32> = parts.iter().flat_map(|(rows, _)| rows.iter().copied()).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut has_sum = vec![false; rows.len()];
    let mut values = vec![0.0; rows.len() * width];
    for (own, gradients) in parts {
        let mut place = 0;
        let gradients = gradients.chunks_exact((width * size_of::<f32>()).max(1));
        for (row, gradient) in own.iter().zip(gradients) {
            place += rows[place..].partition_point(|known| known < row);
            let sum = &mut values[place * width..(place + 1) * width];
            let gradient = gradient.as_chunks().0.iter().map(|value| f32::from_ne_bytes(*value));
            match std::mem::replace(&mut has_sum[place], true) {
                true => sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value),
                false => sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum = value),
            }
        }
    }
    RowGradients { rows, asked: vec![], values }
}
