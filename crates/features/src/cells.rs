//! Columns built cell by cell: rows of JSON or CSV, Python or JavaScript lists.

use crate::{Column, Data, Offsets, Validity};
use thiserror::Error;

/// An owned value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedCell {
    /// A missing value.
    Null,
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A string.
    Text(String),
    /// A list of cells.
    List(Vec<OwnedCell>),
    /// A map from ids to weights.
    Map(Vec<(OwnedCell, OwnedCell)>),
}

/// A column whose rows have cells of different kinds.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("it has values in some rows, and lists or maps in others: expected one kind in all rows")]
pub struct MixedCells;

impl Column<'static> {
    /// The column of cells. If some are strings, all become strings; otherwise, if some are floats, all become floats.
    ///
    /// # Errors
    /// [`MixedCells`] if values are mixed with lists or maps, at any depth.
    pub fn of_cells(cells: Vec<OwnedCell>) -> Result<Self, MixedCells> {
        let has = |kind: fn(&OwnedCell) -> bool| cells.iter().any(kind);
        let validity: Vec<bool> = cells.iter().map(|cell| *cell != OwnedCell::Null).collect();
        let (lists, maps) =
            (has(|cell| matches!(cell, OwnedCell::List(_))), has(|cell| matches!(cell, OwnedCell::Map(_))));
        let data = match (lists, maps) {
            (false, false) if has(|cell| matches!(cell, OwnedCell::Text(_))) => texts(&cells),
            (false, false) if has(|cell| matches!(cell, OwnedCell::Float(_))) => floats(&cells),
            (false, false) => integers(&cells),
            (true, false) => list_column(cells)?,
            (false, true) => map_column(cells)?,
            (true, true) => return Err(MixedCells),
        };
        Ok(Self { data, validity: Validity::Bools(validity.into()) })
    }
}

fn texts(cells: &[OwnedCell]) -> Data<'static> {
    let (mut offsets, mut text) = (vec![0], String::new());
    for cell in cells {
        match cell {
            OwnedCell::Text(own) => text.push_str(own),
            OwnedCell::Int(value) => text.push_str(&value.to_string()),
            OwnedCell::Float(value) => text.push_str(&value.to_string()),
            OwnedCell::Null | OwnedCell::List(_) | OwnedCell::Map(_) => {}
        }
        offsets.push(text.len() as i64);
    }
    Data::Text { offsets: Offsets::I64(offsets.into()), bytes: text.into_bytes().into() }
}

fn floats(cells: &[OwnedCell]) -> Data<'static> {
    let float = |cell: &OwnedCell| match cell {
        OwnedCell::Float(value) => *value,
        OwnedCell::Int(value) => *value as f64,
        _ => 0.0,
    };
    Data::F64(cells.iter().map(float).collect())
}

fn integers(cells: &[OwnedCell]) -> Data<'static> {
    let integer = |cell: &OwnedCell| if let OwnedCell::Int(value) = cell { *value } else { 0 };
    Data::I64(cells.iter().map(integer).collect())
}

fn list_column(cells: Vec<OwnedCell>) -> Result<Data<'static>, MixedCells> {
    let (mut offsets, mut all) = (vec![0], vec![]);
    for cell in cells {
        match cell {
            OwnedCell::List(items) => all.extend(items),
            OwnedCell::Null => {}
            _ => return Err(MixedCells),
        }
        offsets.push(all.len() as i64);
    }
    Ok(Data::List { offsets: Offsets::I64(offsets.into()), items: Box::new(Column::of_cells(all)?) })
}

fn map_column(cells: Vec<OwnedCell>) -> Result<Data<'static>, MixedCells> {
    let (mut offsets, mut keys, mut values) = (vec![0], vec![], vec![]);
    for cell in cells {
        match cell {
            OwnedCell::Map(entries) => {
                let (own_keys, own_values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
                keys.extend(own_keys);
                values.extend(own_values);
            }
            OwnedCell::Null => {}
            _ => return Err(MixedCells),
        }
        offsets.push(keys.len() as i64);
    }
    let (keys, values) = (Box::new(Column::of_cells(keys)?), Box::new(Column::of_cells(values)?));
    Ok(Data::Map { offsets: Offsets::I64(offsets.into()), keys, values })
}
