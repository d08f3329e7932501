//! Rows of a table in a request.

use super::error::{Fault, ServeError};
use crate::tables::nested;
use rewire::predict::{Column, OwnedCell};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Rows for an imported model.
#[derive(Clone, Debug)]
pub struct TableRows {
    pub count: usize,
    /// Cells by column of the model.
    pub columns: Vec<Vec<OwnedCell>>,
}

/// The type of a column's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Integers,
    Floats,
    Texts,
    Lists(Box<Kind>),
    Maps(Box<[Kind; 2]>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    rows: Vec<Map<String, Value>>,
}

impl TableRows {
    /// Parses `{"rows": [{COLUMN: VALUE}]}`. Columns that the model does not read are ignored, missing ones are null.
    pub fn parse(body: &[u8], names: &[String], limit: usize) -> Result<Self, Fault> {
        let Body { mut rows } = serde_json::from_slice(body).map_err(Fault::of_text)?;
        if rows.len() > limit {
            return Err(ServeError::RowsLimit { limit }.into());
        }
        let mut columns = vec![];
        for name in names {
            let cell = |(place, row): (usize, &mut Map<String, Value>)| {
                let value = row.get_mut(name).map(Value::take).unwrap_or(Value::Null);
                let cell = nested(value).ok_or_else(|| {
                    Fault::of_text(format!("rows[{place}]: `{name}` holds an object within a list or an object"))
                })?;
                Ok(OwnedCell::from(cell))
            };
            columns.push(rows.iter_mut().enumerate().map(cell).collect::<Result<Vec<_>, Fault>>()?);
        }
        Self { count: rows.len(), columns }.checked(names)
    }

    /// Rejects columns that mix values with lists or maps.
    pub fn checked(self, names: &[String]) -> Result<Self, Fault> {
        for (name, cells) in names.iter().zip(&self.columns) {
            Column::of_cells(cells.clone()).map_err(|mixed| Fault::of_text(format!("`{name}`: {mixed}")))?;
        }
        Ok(self)
    }

    /// The types of all columns.
    pub fn kinds(&self) -> Vec<Kind> {
        self.columns.iter().map(|cells| Kind::of(&cells.iter().collect::<Vec<_>>())).collect()
    }
}

impl Kind {
    /// The common type of cells, as [`Column::of_cells`] chooses it.
    fn of(cells: &[&OwnedCell]) -> Self {
        let (mut kind, mut items, mut keys, mut values) = (Self::Integers, vec![], vec![], vec![]);
        for cell in cells {
            match cell {
                OwnedCell::Null | OwnedCell::Int(_) => {}
                OwnedCell::Float(_) if kind == Self::Integers => kind = Self::Floats,
                OwnedCell::Float(_) => {}
                OwnedCell::Text(_) => kind = Self::Texts,
                OwnedCell::List(own) => {
                    kind = Self::Lists(Box::new(Self::Integers));
                    items.extend(own);
                }
                OwnedCell::Map(entries) => {
                    kind = Self::Maps(Box::new([Self::Integers, Self::Integers]));
                    keys.extend(entries.iter().map(|(key, _)| key));
                    values.extend(entries.iter().map(|(_, value)| value));
                }
            }
        }
        match kind {
            Self::Lists(_) => Self::Lists(Box::new(Self::of(&items))),
            Self::Maps(_) => Self::Maps(Box::new([Self::of(&keys), Self::of(&values)])),
            kind => kind,
        }
    }
}
