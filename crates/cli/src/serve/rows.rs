//! Rows of a table in a request.

use super::error::{Fault, ServeError};
use crate::tables::nested;
use rewire::predict::{MixedCells, OwnedCell};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Rows for an imported model.
#[derive(Clone, Debug)]
pub struct TableRows {
    pub count: usize,
    /// Cells by column of the model.
    pub columns: Vec<Vec<OwnedCell>>,
    /// The type of each column.
    pub kinds: Vec<Kind>,
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
        Self::new(rows.len(), names, columns)
    }

    /// Rows with cells by column. Columns that mix values with lists or maps are rejected.
    pub fn new(count: usize, names: &[String], columns: Vec<Vec<OwnedCell>>) -> Result<Self, Fault> {
        let kind = |(name, cells): (&String, &Vec<OwnedCell>)| {
            let kind = Kind::of(&cells.iter().collect::<Vec<_>>());
            kind.map_err(|mixed| Fault::of_text(format!("`{name}`: {mixed}")))
        };
        let kinds = names.iter().zip(&columns).map(kind).collect::<Result<_, _>>()?;
        Ok(Self { count, columns, kinds })
    }
}

impl Kind {
    /// The common type of cells, as [`Column::of_cells`](rewire::predict::Column::of_cells) chooses it.
    fn of(cells: &[&OwnedCell]) -> Result<Self, MixedCells> {
        let (mut kind, mut items, mut keys, mut values) = (None, vec![], vec![], vec![]);
        for cell in cells {
            let own = match cell {
                OwnedCell::Null => continue,
                OwnedCell::Int(_) => Self::Integers,
                OwnedCell::Float(_) => Self::Floats,
                OwnedCell::Text(_) => Self::Texts,
                OwnedCell::List(own) => {
                    items.extend(own);
                    Self::Lists(Box::new(Self::Integers))
                }
                OwnedCell::Map(entries) => {
                    keys.extend(entries.iter().map(|(key, _)| key));
                    values.extend(entries.iter().map(|(_, value)| value));
                    Self::Maps(Box::new([Self::Integers, Self::Integers]))
                }
            };
            kind = Some(kind.map_or(Ok(own.clone()), |known: Self| known.common(own))?);
        }
        Ok(match kind.unwrap_or(Self::Integers) {
            Self::Lists(_) => Self::Lists(Box::new(Self::of(&items)?)),
            Self::Maps(_) => Self::Maps(Box::new([Self::of(&keys)?, Self::of(&values)?])),
            kind => kind,
        })
    }

    /// The common type of two cells.
    fn common(self, other: Self) -> Result<Self, MixedCells> {
        match (self, other) {
            (lists @ Self::Lists(_), Self::Lists(_)) => Ok(lists),
            (maps @ Self::Maps(_), Self::Maps(_)) => Ok(maps),
            (Self::Lists(_) | Self::Maps(_), _) | (_, Self::Lists(_) | Self::Maps(_)) => Err(MixedCells),
            (Self::Texts, _) | (_, Self::Texts) => Ok(Self::Texts),
            (Self::Floats, _) | (_, Self::Floats) => Ok(Self::Floats),
            (Self::Integers, Self::Integers) => Ok(Self::Integers),
        }
    }
}
