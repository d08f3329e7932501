//! Columns that are copied from the input to the output.

use super::ColumnFault;
use rewire::rank::User;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;

/// The value of a copied column in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// One value for all candidates.
    One(Value),
    /// One value per candidate.
    Each(Vec<Value>),
}

/// A copied value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A missing value.
    Null,
    /// A bool.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A string.
    Text(String),
}

/// The type of a column in a typed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bools.
    Bool,
    /// 64-bit integers.
    Integer,
    /// 64-bit floats.
    Float,
    /// Strings.
    Text,
}

/// The columns to copy.
#[derive(Clone, Debug)]
pub struct Carry {
    /// Their names.
    pub names: Vec<String>,
    /// The separator of list values in CSV.
    pub separator: u8,
    /// Types of the user and of the columns, from their first values, if every column must have one type.
    pub kinds: Option<Vec<Option<Kind>>>,
}

impl Default for Carry {
    fn default() -> Self {
        Self { names: Vec::new(), separator: b';', kinds: None }
    }
}

impl Carry {
    /// Checks the type of a user.
    pub fn check_user(&mut self, user: &User) -> Result<(), ColumnFault> {
        let Some(kind) = self.kinds.as_mut().and_then(|kinds| kinds.first_mut()) else { return Ok(()) };
        match (&*kind, user) {
            (None, User::Name(_)) => *kind = Some(Kind::Text),
            (None, User::Number(_)) => *kind = Some(Kind::Integer),
            (Some(Kind::Text), _) | (_, User::Number(_)) => {}
            (Some(kind), User::Name(name)) => {
                return Err(ColumnFault::OtherKind { value: name.clone(), expected: kind.name() });
            }
        }
        Ok(())
    }

    /// Checks the cell of a row with this many candidates; its values must have the column's type.
    pub fn take(&mut self, column: usize, cell: Cell, candidates: usize) -> Result<Cell, ColumnFault> {
        let kind = self.kinds.as_mut().and_then(|kinds| kinds.get_mut(column + 1));
        match (cell, kind) {
            (Cell::Each(values), _) if values.len() != candidates => {
                Err(ColumnFault::Length { actual: values.len(), candidates })
            }
            (cell, None) => Ok(cell),
            (Cell::One(value), Some(kind)) => Ok(Cell::One(value.of_kind(kind)?)),
            (Cell::Each(values), Some(kind)) => {
                values.into_iter().map(|value| value.of_kind(kind)).collect::<Result<_, _>>().map(Cell::Each)
            }
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Integer => "an integer",
            Self::Float => "a number",
            Self::Text => "a text",
        }
    }
}

impl Value {
    /// The value of a CSV field: a number in canonical form, or a string.
    pub fn of_field(field: &str) -> Self {
        match field {
            "" => Self::Null,
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            text => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(number), _) if number.to_string() == text => Self::Integer(number),
                (_, Ok(number)) if number.is_finite() && is_number(text) => Self::Float(number),
                _ => Self::Text(text.to_owned()),
            },
        }
    }

    fn of_kind(self, kind: &mut Option<Kind>) -> Result<Self, ColumnFault> {
        let own = match self {
            Self::Null => return Ok(self),
            Self::Bool(_) => Kind::Bool,
            Self::Integer(_) => Kind::Integer,
            Self::Float(_) => Kind::Float,
            Self::Text(_) => Kind::Text,
        };
        match (*kind.get_or_insert(own), self) {
            (kind, value) if kind == own => Ok(value),
            (Kind::Text, value) => Ok(Self::Text(value.to_string())),
            (Kind::Float, Self::Integer(number)) if number.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS => {
                Ok(Self::Float(number as f64))
            }
            (kind, value) => Err(ColumnFault::OtherKind { value: value.to_string(), expected: kind.name() }),
        }
    }
}

/// True for text that is a number without a sign or zeros that would be lost.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    matches!(digits, [b'0', b'.', ..] | [b'1'..=b'9', ..])
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneValue)
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOrValue)
    }
}

struct OneValue;

impl Visitor<'_> for OneValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, true, false or null")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

struct ListOrValue;

impl<'de> Visitor<'de> for ListOrValue {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, true, false, null, or a list of them")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Cell, E> {
        OneValue.visit_bool(value).map(Cell::One)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Cell, E> {
        OneValue.visit_i64(value).map(Cell::One)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Cell, E> {
        OneValue.visit_u64(value).map(Cell::One)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Cell, E> {
        OneValue.visit_f64(value).map(Cell::One)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Cell, E> {
        OneValue.visit_str(value).map(Cell::One)
    }

    fn visit_unit<E: Error>(self) -> Result<Cell, E> {
        OneValue.visit_unit().map(Cell::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Cell::Each(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbers_only_where_nothing_is_lost() {
        assert_eq!(["", "true", "-7"].map(Value::of_field), [Value::Null, Value::Bool(true), Value::Integer(-7)]);
        assert_eq!(["0.5", "1e3", "-0.25"].map(Value::of_field), [0.5, 1000.0, -0.25].map(Value::Float));
        for text in ["007", "+1", "nan", "inf", "1_0", " 1", "-", "1e999", "-0"] {
            assert_eq!(Value::of_field(text), Value::Text(text.to_owned()));
        }
    }

    #[test]
    fn columns_with_types_keep_that_of_their_first_value() {
        let mut carry = Carry { names: vec!["a".into()], kinds: Some(vec![None; 2]), ..Carry::default() };
        let mut take = |value: Value| carry.take(0, Cell::One(value), 3);
        assert_eq!(take(Value::Null), Ok(Cell::One(Value::Null)));
        assert_eq!(take(Value::Float(0.5)), Ok(Cell::One(Value::Float(0.5))));
        assert_eq!(take(Value::Integer(2)), Ok(Cell::One(Value::Float(2.0))));
        assert!(take(Value::Integer(i64::MAX)).is_err() && take(Value::Text("x".into())).is_err());
        assert!(carry.take(0, Cell::Each(vec![Value::Null; 2]), 3).is_err());
        assert!(carry.check_user(&User::Number(1)).is_ok() && carry.check_user(&User::from("a")).is_err());
    }

    #[test]
    fn lists_and_values_of_json() {
        let cell = |text: &str| serde_json::from_str::<Cell>(text).ok();
        assert_eq!(
            cell("[1,\"a\",null]"),
            Some(Cell::Each(vec![Value::Integer(1), Value::Text("a".into()), Value::Null]))
        );
        assert_eq!(cell("1.5"), Some(Cell::One(Value::Float(1.5))));
        assert_eq!((cell("{}"), cell("[[1]]")), (None, None));
    }
}
