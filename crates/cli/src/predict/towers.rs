//! The best catalogue items of users, by the towers of an imported model.

use super::PredictError;
use super::format::Field;
use super::frame::{Data, Frame};
use super::imported::{Tabular, encoded, in_file};
use super::vectors::Catalogue;
use crate::error::CliError;
use crate::requests::{InputError, title};
use crate::tables::{self, Items, integer};
use rewire::predict::{Column, Predictor};
use rewire::rank::{Index, RankError, RankOptions};
use std::path::Path;

/// Catalogue rows per batch.
const ROWS: usize = 1 << 12;

impl Catalogue {
    /// Computes the vectors of a table's items; `column` names them if a row is an item.
    pub fn of_table(tower: &Predictor, file: &Path, column: Option<&str>) -> Result<Self, CliError> {
        let items = Items::of(tower, column).ok_or(PredictError::NoItemColumn)?;
        let names: Vec<String> = tower.columns().iter().chain([&items.column]).cloned().collect();
        let mut table = tables::open(file, &names)?;
        let (mut ids, mut values, mut row) = (vec![], vec![], 0);
        loop {
            let mut read = table.read(ROWS)?;
            if read.count == 0 {
                break;
            }
            let cells = read.columns.pop().unwrap_or_default();
            for (at, cell) in cells.iter().enumerate() {
                let own: Option<Vec<i64>> = items.values(cell).iter().map(integer).collect();
                ids.extend(own.ok_or_else(|| InputError::Table {
                    file: title(Some(file)),
                    reason: format!("row {}: `{}` must have integers", row + at as u64 + 1, items.column),
                })?);
            }
            let columns = encoded(tower.columns(), read.columns, (row, file))?;
            let predicted = tower.predict(read.count, &columns).map_err(|error| in_file(error, row))?;
            values.extend(predicted.columns.into_iter().flat_map(|lists| lists.values));
            row += read.count as u64;
        }
        Self::new(ids, values).ok_or_else(|| PredictError::NoItems { file: file.display().to_string() }.into())
    }
}

/// Finds the best catalogue items of users. Users have one vector, or one per interest, of which the best counts.
pub struct Towers {
    users: Predictor,
    index: Index,
    width: usize,
    top: usize,
}

impl Towers {
    pub fn new(users: Predictor, items: &Catalogue, top: usize, options: &RankOptions) -> Result<Self, CliError> {
        Ok(Self { users, index: items.index(options)?, width: items.width(), top })
    }

    /// The best items for a user's concatenated vectors. Inactive interests are zeros.
    fn best(&self, vectors: &[f32]) -> Result<Vec<(i64, f32)>, RankError> {
        let on = vectors.chunks(self.width.max(1)).filter(|vector| vector.iter().any(|&element| element != 0.0));
        let on: Vec<f32> = on.flatten().copied().collect();
        let mut all: Vec<(i64, f32)> = self.index.top(&on, self.width, self.top)?.into_iter().flatten().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut best: Vec<(i64, f32)> = vec![];
        for (item, score) in all {
            if best.len() < self.top && best.iter().all(|(known, _)| *known != item) {
                best.push((item, score));
            }
        }
        Ok(best)
    }
}

impl Tabular for Towers {
    fn predictor(&self) -> &Predictor {
        &self.users
    }

    /// `item` and `score`.
    fn fields(&self) -> Vec<Field> {
        let columns = [("item", Data::Integers(vec![])), ("score", Data::Floats(vec![]))];
        columns.map(|(name, data)| Field { name: name.to_owned(), data }).into()
    }

    fn compute(&self, rows: usize, columns: &[(&str, Column<'_>)]) -> Result<(Frame, Vec<usize>), RankError> {
        let predicted = self.users.predict(rows, columns)?;
        let users = predicted.columns.first().into_iter().flat_map(|users| (0..rows).map(|row| users.row(row)));
        let best = users.map(|vectors| self.best(vectors)).collect::<Result<Vec<_>, _>>()?;
        let counts: Vec<usize> = best.iter().map(Vec::len).collect();
        let (items, scores) = best.into_iter().flatten().unzip();
        let columns = vec![Data::Integers(items), Data::Floats(scores)];
        Ok((Frame { rows: counts.iter().sum(), columns }, counts))
    }
}
