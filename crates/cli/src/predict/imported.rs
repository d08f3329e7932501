//! Predictions of imported models, which read tables.

use super::destination::{Destination, Part, remove_journal};
use super::format::Field;
use super::frame::{Data, Frame};
use super::journal::{Counts, Journal};
use super::report::{Meter, Summary};
use super::{Origin, PredictError};
use crate::error::CliError;
use crate::requests::{Carry, Cell, ColumnFault, InputError, Kind, Rejected, title};
use crate::tables::{self, Nested, Rows, Table};
use rewire::predict::{Column, EncodeError, Lists, OwnedCell, Predicted, PredictedColumn, Predictor};
use rewire::rank::{RankError, Spread};
use std::path::Path;
use std::time::Instant;

/// Default rows per batch.
const ROWS: usize = 512;

/// Computes output columns from the columns of a table.
pub trait Tabular: Sync {
    /// The model that reads the table.
    fn predictor(&self) -> &Predictor;

    /// The columns of the output.
    fn fields(&self) -> Vec<Field>;

    /// The rows of the output, and their number per row of the table.
    fn compute(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> Result<(Frame, Vec<usize>), RankError>;
}

impl Tabular for Predictor {
    fn predictor(&self) -> &Predictor {
        self
    }

    fn fields(&self) -> Vec<Field> {
        let data = |is_list: bool| if is_list { Data::vectors(0, vec![]) } else { Data::Floats(vec![]) };
        let field = |output: &PredictedColumn| Field { name: output.name.clone(), data: data(output.is_list) };
        self.outputs().iter().map(field).collect()
    }

    fn compute(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> Result<(Frame, Vec<usize>), RankError> {
        let Predicted { counts, columns } = self.predict(rows, columns)?;
        let column = |(Lists { ends, values }, output): (Lists, &PredictedColumn)| match output.is_list {
            true => Data::Vectors { ends, values },
            false => Data::Floats(values),
        };
        let columns = columns.into_iter().zip(self.outputs()).map(column).collect();
        Ok((Frame { rows: counts.iter().sum(), columns }, counts))
    }
}

/// The valid rows of a table.
struct Fit {
    rows: usize,
    frame: Frame,
    counts: Vec<usize>,
    carried: Vec<Vec<Nested>>,
    /// The remaining rows, from 0.
    kept: Vec<usize>,
    rejected: Vec<Rejected>,
}

/// A run of an imported model.
pub struct Run<'a, T> {
    pub origin: Origin<'a>,
    pub models: Spread<T>,
}

impl<T: Tabular> Run<'_, T> {
    /// Writes the predictions of all rows.
    pub fn all(&self, begun: Instant) -> Result<Summary, CliError> {
        let Origin { options, places, format } = &self.origin;
        let Some(data) = options.data.as_deref() else { return Err(PredictError::NoData.into()) };
        let fields = self.fields()?;
        let report = crate::spread::report(&self.models, |model| model.predictor().report());
        let adapter = report.adapter.unwrap_or_else(|| "cpu".into());
        let journal = if options.resume { Journal::read(&places.journal())? } else { None };
        let journal = journal.map(|journal| self.origin.same(journal, &adapter)).transpose()?;
        let rows = options.batch.map_or(ROWS, |batch| batch.get());
        let summary = |counts: Counts, resumed_rows| {
            let seconds = begun.elapsed().as_secs_f64();
            Summary {
                rows: counts.rows,
                users: counts.users,
                rejected: counts.rejected,
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
            Ok(()) if destination.counts().users == 0 => Err(destination.reject_all()?.into()),
            Ok(()) => Ok(summary(destination.finish()?, before)),
            Err(error) => {
                destination.abandon();
                Err(error)
            }
        }
    }

    /// The input columns: those of the model, and those to copy.
    fn names(&self) -> Vec<String> {
        let carried = &self.origin.options.columns;
        self.models.first().predictor().columns().iter().chain(carried).cloned().collect()
    }

    /// The columns of the output.
    fn fields(&self) -> Result<Vec<Field>, PredictError> {
        let mut fields = self.models.first().fields();
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
            let read = table.read(rows)?;
            if read.count == 0 {
                break;
            }
            let all = read.count as u64;
            let Fit { rows: users, mut frame, counts, carried, kept, rejected } = self.compute(read, row, data)?;
            for (column, cells) in carried.into_iter().enumerate() {
                let values = cells.into_iter().zip(&counts).zip(&kept).map(|((cell, count), at)| {
                    let taken = cell_of(cell).and_then(|cell| carry.take(column, cell, *count));
                    taken.map_err(|fault| InputError::Column {
                        file: title(Some(data)),
                        row: row + *at as u64 + 1,
                        column: carry.names.get(column).cloned().unwrap_or_default(),
                        fault,
                    })
                });
                let cells = values.collect::<Result<Vec<_>, _>>()?;
                frame.columns.extend(super::task::by_row(vec![cells], &counts));
            }
            row += all;
            let kinds = carry.kinds.as_deref().map(|kinds| kinds.get(1..).unwrap_or_default().to_vec());
            destination.take(Part { frame, users: users as u64, rejected, row, kinds })?;
            if let Some(progress) = table.progress() {
                meter.update(progress, destination.counts().rows);
            }
        }
        let Counts { users, rejected, .. } = destination.counts();
        if users + rejected == 0 {
            return Err(InputError::Table { file: title(Some(data)), reason: "it holds no rows".to_owned() }.into());
        }
        Ok(())
    }

    /// The predictions of rows after `row` others. With `--rejects`, invalid rows are set aside.
    fn compute(&self, mut read: Rows, row: u64, data: &Path) -> Result<Fit, CliError> {
        let first = self.models.first().predictor();
        let mut carried = read.columns.split_off(first.columns().len());
        let (mut kept, mut rejected): (Vec<usize>, _) = ((0..read.count).collect(), vec![]);
        if self.origin.options.rejects.is_some() {
            let columns = encoded(first.columns(), read.columns.clone(), (row, data))?;
            let faults = first.faults(read.count, &columns);
            kept.retain(|at| !faults.contains_key(at));
            for column in read.columns.iter_mut().chain(&mut carried) {
                let cells = std::mem::take(column).into_iter().enumerate();
                *column = cells.filter(|(at, _)| !faults.contains_key(at)).map(|(_, cell)| cell).collect();
            }
            let number = |at: usize| Some(row + at as u64 + 1);
            let reason = |fault: EncodeError| fault.after(row as usize + 1).to_string();
            let line =
                |(at, fault): (usize, EncodeError)| Rejected { row: number(at), reason: reason(fault), text: None };
            rejected.extend(faults.into_iter().map(line));
        }
        let columns = encoded(first.columns(), read.columns, (row, data))?;
        let computed = self.models.run(|model| model.compute(kept.len(), &columns));
        let (frame, counts) = computed.map_err(|error| in_file(error, row))?;
        Ok(Fit { rows: kept.len(), frame, counts, carried, kept, rejected })
    }
}

/// An error of rows after `before` others, with their numbers from 1.
pub fn in_file(error: RankError, before: u64) -> RankError {
    match error {
        RankError::Columns(fault) => RankError::Columns(fault.after(before as usize + 1)),
        other => other,
    }
}

/// The columns of a model from cells of rows after `row` of `data`.
pub fn encoded<'p>(
    names: &'p [String],
    cells: Vec<Vec<Nested>>,
    (row, data): (u64, &Path),
) -> Result<Vec<(&'p str, Column<'static>)>, InputError> {
    let column = |(name, cells): (&'p String, Vec<Nested>)| {
        let column = Column::of_cells(cells.into_iter().map(OwnedCell::from).collect());
        let column = column.map_err(|mixed| InputError::Column {
            file: title(Some(data)),
            row: row + 1,
            column: name.clone(),
            fault: ColumnFault::Unreadable { reason: mixed.to_string() },
        });
        Ok((name.as_str(), column?))
    };
    names.iter().zip(cells).map(column).collect()
}

/// The column types, preceded by that of the user, which is missing.
fn with_user(kinds: Vec<Option<Kind>>) -> Vec<Option<Kind>> {
    std::iter::once(None).chain(kinds).collect()
}

/// A cell to copy to the output.
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
