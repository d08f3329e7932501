//! Parquet files as columns.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use rewire_features::{Column, Data, Offsets, Validity};
use std::collections::HashMap;
use std::path::Path;

/// A column that owns its memory.
#[derive(Debug)]
pub struct Owned {
    valid: Vec<bool>,
    data: OwnedData,
}

#[derive(Debug)]
enum OwnedData {
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Text(Vec<i32>, Vec<u8>),
    List(Vec<i32>, Box<Owned>),
    Map(Vec<i32>, Box<Owned>, Box<Owned>),
}

/// The columns of a file by name.
pub fn read(path: &Path) -> Result<HashMap<String, Owned>, Box<dyn std::error::Error>> {
    let reader = SerializedFileReader::new(std::fs::File::open(path)?)?;
    let mut columns: HashMap<String, Vec<Field>> = HashMap::new();
    for row in reader.get_row_iter(None)? {
        for (name, field) in row?.get_column_iter() {
            columns.entry(name.clone()).or_default().push(field.clone());
        }
    }
    Ok(columns.into_iter().map(|(name, fields)| (name, Owned::new(&fields))).collect())
}

fn offsets(lengths: impl Iterator<Item = usize>) -> Vec<i32> {
    let sums = lengths.scan(0, |sum, length| {
        *sum += length as i32;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

impl Owned {
    fn new(fields: &[Field]) -> Self {
        let valid = fields.iter().map(|field| !matches!(field, Field::Null)).collect();
        let data = match fields.iter().find(|field| !matches!(field, Field::Null)) {
            Some(Field::Float(_) | Field::Double(_)) => OwnedData::Floats(fields.iter().map(float).collect()),
            Some(Field::Str(_)) => {
                let text = |field: &Field| match field {
                    Field::Str(text) => text.clone(),
                    _ => String::new(),
                };
                let texts: Vec<String> = fields.iter().map(text).collect();
                OwnedData::Text(offsets(texts.iter().map(String::len)), texts.concat().into_bytes())
            }
            Some(Field::ListInternal(_)) => {
                let items = |field: &Field| match field {
                    Field::ListInternal(list) => list.elements().to_vec(),
                    _ => vec![],
                };
                let lists: Vec<Vec<Field>> = fields.iter().map(items).collect();
                OwnedData::List(offsets(lists.iter().map(Vec::len)), Box::new(Self::new(&lists.concat())))
            }
            Some(Field::MapInternal(_)) => {
                let entries = |field: &Field| match field {
                    Field::MapInternal(map) => map.entries().to_vec(),
                    _ => vec![],
                };
                let maps: Vec<Vec<(Field, Field)>> = fields.iter().map(entries).collect();
                let starts = offsets(maps.iter().map(Vec::len));
                let (keys, values): (Vec<Field>, Vec<Field>) = maps.concat().into_iter().unzip();
                OwnedData::Map(starts, Box::new(Self::new(&keys)), Box::new(Self::new(&values)))
            }
            _ => OwnedData::Ints(fields.iter().map(int).collect()),
        };
        Self { valid, data }
    }

    pub fn column(&self) -> Column<'_> {
        let data = match &self.data {
            OwnedData::Ints(values) => Data::I64(values),
            OwnedData::Floats(values) => Data::F32(values),
            OwnedData::Text(offsets, bytes) => Data::Text { offsets: Offsets::I32(offsets), bytes },
            OwnedData::List(offsets, items) => {
                Data::List { offsets: Offsets::I32(offsets), items: Box::new(items.column()) }
            }
            OwnedData::Map(offsets, keys, values) => Data::Map {
                offsets: Offsets::I32(offsets),
                keys: Box::new(keys.column()),
                values: Box::new(values.column()),
            },
        };
        Column { data, validity: Validity::Bools(&self.valid) }
    }
}

fn float(field: &Field) -> f32 {
    match field {
        Field::Float(value) => *value,
        Field::Double(value) => *value as f32,
        _ => 0.0,
    }
}

fn int(field: &Field) -> i64 {
    match field {
        Field::Long(value) => *value,
        Field::Int(value) => i64::from(*value),
        _ => 0,
    }
}
