//! Parquet files as columns.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use rewire_features::{Column, OwnedCell};
use std::collections::HashMap;
use std::path::Path;

/// The columns of a file by name.
pub fn read(path: &Path) -> Result<HashMap<String, Column<'static>>, Box<dyn std::error::Error>> {
    let reader = SerializedFileReader::new(std::fs::File::open(path)?)?;
    let mut columns: HashMap<String, Vec<OwnedCell>> = HashMap::new();
    for row in reader.get_row_iter(None)? {
        for (name, field) in row?.get_column_iter() {
            columns.entry(name.clone()).or_default().push(cell(field));
        }
    }
    columns.into_iter().map(|(name, cells)| Ok((name, Column::of_cells(cells)?))).collect()
}

fn cell(field: &Field) -> OwnedCell {
    match field {
        Field::Long(value) => OwnedCell::Int(*value),
        Field::Int(value) => OwnedCell::Int(i64::from(*value)),
        Field::Float(value) => OwnedCell::Float(f64::from(*value)),
        Field::Double(value) => OwnedCell::Float(*value),
        Field::Str(text) => OwnedCell::Text(text.clone()),
        Field::ListInternal(list) => OwnedCell::List(list.elements().iter().map(cell).collect()),
        Field::MapInternal(map) => {
            OwnedCell::Map(map.entries().iter().map(|(key, value)| (cell(key), cell(value))).collect())
        }
        _ => OwnedCell::Null,
    }
}
