//! Items of rows.

use super::Nested;
use crate::requests::Value;
use rewire::predict::Predictor;

/// The column with the items of each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    pub column: String,
    /// The separator of several items in text; `None` if a row is an item.
    delimiter: Option<String>,
}

impl Items {
    /// The candidates of a list ranker; for other models rows are items, which `column` names.
    pub fn of(predictor: &Predictor, column: Option<&str>) -> Option<Self> {
        let candidates = predictor.item().map(|item| Self {
            delimiter: Some(item.sequence.as_ref().map_or(";", |form| form.delimiter.as_str()).to_owned()),
            column: item.name.clone(),
        });
        match (candidates, column) {
            (Some(items), None) => Some(items),
            (Some(items), Some(column)) => Some(Self { column: column.to_owned(), ..items }),
            (None, column) => column.map(|column| Self { column: column.to_owned(), delimiter: None }),
        }
    }

    /// True if a row is an item.
    pub fn are_rows(&self) -> bool {
        self.delimiter.is_none()
    }

    /// The values of a cell: one, or those of a list.
    pub fn values(&self, cell: &Nested) -> Vec<Value> {
        let Some(delimiter) = &self.delimiter else {
            return match cell {
                Nested::One(value) => vec![value.clone()],
                Nested::List(_) | Nested::Map(_) => vec![Value::Null],
            };
        };
        match cell {
            Nested::One(Value::Text(text)) => {
                text.split(delimiter).filter(|one| !one.is_empty()).map(value_of).collect()
            }
            Nested::One(Value::Null) | Nested::Map(_) => vec![],
            Nested::One(value) => vec![value.clone()],
            Nested::List(cells) => cells.iter().map(|cell| self.first(cell)).collect(),
        }
    }

    /// The first value of an item with several values.
    fn first(&self, cell: &Nested) -> Value {
        match cell {
            Nested::One(value) => value.clone(),
            Nested::List(cells) => cells.first().map_or(Value::Null, |cell| self.first(cell)),
            Nested::Map(_) => Value::Null,
        }
    }
}

fn value_of(text: &str) -> Value {
    text.trim().parse().map_or_else(|_| Value::Text(text.to_owned()), Value::Integer)
}

/// The integer of a value: an integer, a whole number, or the integer in a string.
pub fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(value) => Some(*value),
        Value::Bool(value) => Some(i64::from(*value)),
        Value::Float(value) => rewire::rank::whole(*value),
        Value::Text(text) => text.trim().parse().ok(),
        Value::Null => None,
    }
}
