//! Predictions of imported models, which read tables of any columns.

use super::destination::{Destination, Part, remove_journal};
use super::format::Field;
use super::frame::{Data, Frame};
use super::journal::{Counts, Journal};
use super::report::{Meter, Summary};
use super::{Origin, PredictError};
use crate::error::CliError;
use crate::requests::{Carry, Cell, ColumnFault, InputError, Kind, title};
use crate::tables::{self, Nested, Owned, Rows, Table};
use rewire::predict::{Lists, Predictor};
use rewire::rank::Spread;
use std::path::Path;
use std::time::Instant;

/// Rows that are computed together, unless it is said.
const ROWS: usize = 512;

/// A run of an imported model.
pub struct Run<'a> {
    pub origin: Origin<'a>,
    pub predictors: Spread<Predictor>,
}

impl Run<'_> {
    /// Writes the predictions of all rows.
    pub fn all(&self, begun: Instant) -> Result<Summary, CliError> {
        let Origin { options, places, format } = &self.origin;
        let Some(data) = options.data.as_deref() else { return Err(PredictError::NoData.into()) };
        let fields = self.fields()?;
        let report = crate::spread::report(&self.predictors, Predictor::report);
        let adapter = report.adapter.unwrap_or_else(|| "cpu".into());
        let journal = if options.resume { Journal::read(&places.journal())? } else { None };
        let journal = journal.map(|journal| self.origin.same(journal, &adapter)).transpose()?;
        let rows = options.batch.map_or(ROWS, |batch| batch.get());
        let summary = |counts: Counts, resumed_rows| {
            let seconds = begun.elapsed().as_secs_f64();
            Summary {
                rows: counts.rows,
                users: counts.users,
                rejected: 0,
                resumed_rows,
                seconds,
                rows_per_second: (counts.rows - resumed_rows) as f64 / seconds,
                batch: rows,
                kernel: report.kernel.to_string(),
                adapter: adapter.clone(),
            }
        };
        if let Some(journal) = journal.as_ref().filter(|journal| places.are_taken(journal)) {
            remove_journal(places)?;
            return Ok(summary(journal.counts, journal.counts.rows));
        }
        let kinds = format.has_types().then(|| vec![None; options.columns.len()]);
        let mut carry = Carry {
            names: options.columns.clone(),
            separator: options.list_separator,
            kinds: journal.as_ref().map_or(kinds, |journal| journal.kinds.clone()).map(with_user),
        };
        let mut table = tables::open(data, &self.names())?;
        let foot = journal.as_ref().map(|journal| journal.foot.as_slice());
        let encoder = format.encoder(fields, foot, options.list_separator, &places.out.display().to_string())?;
        let mut destination = match journal {
            Some(journal) => {
                table.skip(journal.row)?;
                Destination::resume(places.clone(), encoder, journal)?
            }
            None => Destination::create(places.clone(), encoder, self.origin.identify(&adapter)?)?,
        };
        let before = destination.counts().rows;
        match self.write(&mut *table, &mut carry, &mut destination, (rows, data)) {
            Ok(()) => Ok(summary(destination.finish()?, before)),
            Err(error) => {
                destination.abandon();
                Err(error)
            }
        }
    }

    /// The columns that are read: those of the model, and those that are carried along.
    fn names(&self) -> Vec<String> {
        let carried = &self.origin.options.columns;
        self.predictors.first().columns().iter().chain(carried).cloned().collect()
    }

    /// The columns of the output.
    fn fields(&self) -> Result<Vec<Field>, PredictError> {
        let outputs = self.predictors.first().outputs().iter().map(|output| {
            let data = if output.is_list { Data::vectors(0, vec![]) } else { Data::Floats(vec![]) };
            Field { name: output.name.clone(), data }
        });
        let mut fields: Vec<Field> = outputs.collect();
        for name in &self.origin.options.columns {
            if fields.iter().any(|field| field.name == *name) {
                return Err(PredictError::Column { column: name.clone() });
            }
            fields.push(Field { name: name.clone(), data: Data::Values(vec![]) });
        }
        Ok(fields)
    }

    fn write(
        &self,
        table: &mut dyn Table,
        carry: &mut Carry,
        destination: &mut Destination,
        (rows, data): (usize, &Path),
    ) -> Result<(), CliError> {
        let mut meter = Meter::new(destination.counts().rows);
        let mut row = destination.row();
        loop {
            let mut read = table.read(rows)?;
            if read.count == 0 {
                break;
            }
            let carried = read.columns.split_off(self.predictors.first().columns().len());
            let users = read.count as u64;
            let (mut frame, counts) = self.compute(read, row, data)?;
            for (column, cells) in carried.into_iter().enumerate() {
                let values = cells.into_iter().zip(&counts).enumerate().map(|(at, (cell, count))| {
                    let taken = cell_of(cell).and_then(|cell| carry.take(column, cell, *count));
                    taken.map_err(|fault| InputError::Column {
                        file: title(Some(data)),
                        row: row + at as u64 + 1,
                        column: carry.names.get(column).cloned().unwrap_or_default(),
                        fault,
                    })
                });
                let cells = values.collect::<Result<Vec<_>, _>>()?;
                frame.columns.extend(super::task::by_row(vec![cells], &counts));
            }
            row += users;
            let kinds = carry.kinds.as_deref().map(|kinds| kinds.get(1..).unwrap_or_default().to_vec());
            destination.take(Part { frame, users, rejected: vec![], row, kinds })?;
            if let Some(progress) = table.progress() {
                meter.update(progress, destination.counts().rows);
            }
        }
        match destination.counts().users {
            0 => Err(InputError::Table { file: title(Some(data)), reason: "it holds no rows".to_owned() }.into()),
            _ => Ok(()),
        }
    }

    /// The predictions of rows, and how many rows of the output each has.
    fn compute(&self, read: Rows, row: u64, data: &Path) -> Result<(Frame, Vec<usize>), CliError> {
        let first = self.predictors.first();
        let columns = encoded(first.columns(), read.columns, (row, data))?;
        let columns: Vec<_> = columns.iter().map(|(name, column)| (name.as_str(), column.column())).collect();
        let predicted = self.predictors.run(|predictor| predictor.predict(read.count, &columns))?;
        let lists = predicted.columns.into_iter().zip(first.outputs());
        let columns = lists.map(|(Lists { ends, values }, output)| match output.is_list {
            true => Data::Vectors { ends, values },
            false => Data::Floats(values),
        });
        let frame = Frame { rows: predicted.counts.iter().sum(), columns: columns.collect() };
        Ok((frame, predicted.counts))
    }
}

/// Columns by name from cells of rows after `row` of `data`.
pub fn encoded(
    names: &[String],
    cells: Vec<Vec<Nested>>,
    (row, data): (u64, &Path),
) -> Result<Vec<(String, Owned)>, InputError> {
    let column = |(name, cells): (&String, Vec<Nested>)| {
        let column = Owned::of(cells).map_err(|fault| InputError::Column {
            file: title(Some(data)),
            row: row + 1,
            column: name.clone(),
            fault,
        });
        Ok((name.clone(), column?))
    };
    names.iter().zip(cells).map(column).collect()
}

/// The kinds of columns behind that of a user, which there is none of.
fn with_user(kinds: Vec<Option<Kind>>) -> Vec<Option<Kind>> {
    std::iter::once(None).chain(kinds).collect()
}

/// A cell that is carried along.
fn cell_of(cell: Nested) -> Result<Cell, ColumnFault> {
    let value = |cell| match cell {
        Nested::One(value) => Ok(value),
        Nested::List(_) | Nested::Map(_) => {
            Err(ColumnFault::Unreadable { reason: "it holds lists of lists or maps: expected values or lists".into() })
        }
    };
    match cell {
        Nested::List(cells) => cells.into_iter().map(value).collect::<Result<_, _>>().map(Cell::Each),
        cell => value(cell).map(Cell::One),
    }
}
