//! Cells side by side, as features read them.

use super::Nested;
use crate::requests::{ColumnFault, Value};
use rewire::predict::{Column, Data, Offsets, Validity};

/// A column with the memory that it lies in.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    data: Buffers,
    validity: Vec<bool>,
}

#[derive(Clone, Debug)]
enum Buffers {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Text { offsets: Vec<i64>, bytes: Vec<u8> },
    List { offsets: Vec<i64>, items: Box<Owned> },
    Map { offsets: Vec<i64>, keys: Box<Owned>, values: Box<Owned> },
}

impl Default for Buffers {
    fn default() -> Self {
        Self::Integers(vec![])
    }
}

impl Owned {
    /// The column of cells. Numbers are floats where one of them is, and text where one is text.
    pub fn of(cells: Vec<Nested>) -> Result<Self, ColumnFault> {
        let has = |kind: fn(&Nested) -> bool| cells.iter().any(kind);
        match (has(|cell| matches!(cell, Nested::List(_))), has(|cell| matches!(cell, Nested::Map(_)))) {
            (false, false) => Ok(Self::scalars(cells.into_iter().filter_map(|cell| match cell {
                Nested::One(value) => Some(value),
                Nested::List(_) | Nested::Map(_) => None,
            }))),
            (true, false) => Self::lists(cells),
            (false, true) => Self::maps(cells),
            (true, true) => Err(mixed()),
        }
    }

    fn scalars(values: impl Iterator<Item = Value>) -> Self {
        let values: Vec<Value> = values.collect();
        let validity = values.iter().map(|value| *value != Value::Null).collect();
        let data = if values.iter().any(|value| matches!(value, Value::Text(_))) {
            let (mut offsets, mut bytes) = (vec![0], vec![]);
            for value in values {
                bytes.extend(value.to_string().into_bytes());
                offsets.push(bytes.len() as i64);
            }
            Buffers::Text { offsets, bytes }
        } else if values.iter().any(|value| matches!(value, Value::Float(_))) {
            let float = |value: &Value| match value {
                Value::Float(value) => *value,
                value => integer(value) as f64,
            };
            Buffers::Floats(values.iter().map(float).collect())
        } else {
            Buffers::Integers(values.iter().map(integer).collect())
        };
        Self { data, validity }
    }

    fn lists(cells: Vec<Nested>) -> Result<Self, ColumnFault> {
        let (mut offsets, mut all, mut validity) = (vec![0], vec![], vec![]);
        for cell in cells {
            validity.push(cell != Nested::One(Value::Null));
            match cell {
                Nested::List(items) => all.extend(items),
                Nested::One(Value::Null) => {}
                Nested::One(_) | Nested::Map(_) => return Err(mixed()),
            }
            offsets.push(all.len() as i64);
        }
        Ok(Self { data: Buffers::List { offsets, items: Box::new(Self::of(all)?) }, validity })
    }

    fn maps(cells: Vec<Nested>) -> Result<Self, ColumnFault> {
        let (mut offsets, mut keys, mut values, mut validity) = (vec![0], vec![], vec![], vec![]);
        for cell in cells {
            validity.push(cell != Nested::One(Value::Null));
            match cell {
                Nested::Map(entries) => entries.into_iter().for_each(|(key, value)| {
                    keys.push(key);
                    values.push(value);
                }),
                Nested::One(Value::Null) => {}
                Nested::One(_) | Nested::List(_) => return Err(mixed()),
            }
            offsets.push(keys.len() as i64);
        }
        let [keys, values] = [keys, values].map(|all| Box::new(Self::scalars(all.into_iter())));
        Ok(Self { data: Buffers::Map { offsets, keys, values }, validity })
    }

    /// The column as features read it.
    pub fn column(&self) -> Column<'_> {
        let data = match &self.data {
            Buffers::Integers(values) => Data::I64(values),
            Buffers::Floats(values) => Data::F64(values),
            Buffers::Text { offsets, bytes } => Data::Text { offsets: Offsets::I64(offsets), bytes },
            Buffers::List { offsets, items } => {
                Data::List { offsets: Offsets::I64(offsets), items: Box::new(items.column()) }
            }
            Buffers::Map { offsets, keys, values } => Data::Map {
                offsets: Offsets::I64(offsets),
                keys: Box::new(keys.column()),
                values: Box::new(values.column()),
            },
        };
        Column { data, validity: Validity::Bools(&self.validity) }
    }
}

/// The integer of a value that is no float.
fn integer(value: &Value) -> i64 {
    match value {
        Value::Integer(value) => *value,
        Value::Bool(value) => i64::from(*value),
        _ => 0,
    }
}

fn mixed() -> ColumnFault {
    ColumnFault::Unreadable {
        reason: "it holds values, lists or maps in turn: expected one of them in all rows".into(),
    }
}
