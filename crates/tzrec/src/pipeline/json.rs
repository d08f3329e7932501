//! Converts messages to JSON.

use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, Value as Field};
use serde_json::{Map, Number, Value};

/// A message as a JSON object of its set fields.
pub(super) fn object(message: &DynamicMessage) -> Value {
    Value::Object(
        message.fields().map(|(field, value)| (field.name().to_owned(), field_value(&field, value))).collect(),
    )
}

fn field_value(field: &FieldDescriptor, value: &Field) -> Value {
    match (value, field.kind()) {
        (Field::List(values), kind) => Value::Array(values.iter().map(|value| scalar(value, &kind)).collect()),
        (Field::Map(entries), Kind::Message(entry)) => {
            let kind = entry.map_entry_value_field().kind();
            let mut entries: Vec<_> = entries.iter().map(|(k, value)| (key(k), scalar(value, &kind))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect::<Map<_, _>>())
        }
        (value, kind) => scalar(value, &kind),
    }
}

fn scalar(value: &Field, kind: &Kind) -> Value {
    match (value, kind) {
        (Field::Message(message), _) => object(message),
        (Field::EnumNumber(number), Kind::Enum(names)) => enum_name(names, *number),
        (Field::Bool(value), _) => (*value).into(),
        (Field::I32(value), _) | (Field::EnumNumber(value), _) => (*value).into(),
        (Field::I64(value), _) => (*value).into(),
        (Field::U32(value), _) => (*value).into(),
        (Field::U64(value), _) => (*value).into(),
        // The shortest decimal of the f32 becomes the f64: 0.1 stays 0.1.
        (Field::F32(value), _) => float(value.to_string()),
        (Field::F64(value), _) => float(value.to_string()),
        (Field::String(value), _) => value.as_str().into(),
        (Field::Bytes(value), _) => String::from_utf8_lossy(value).into(),
        (Field::List(_) | Field::Map(_), _) => Value::Null,
    }
}

fn enum_name(names: &EnumDescriptor, number: i32) -> Value {
    names.get_value(number).map_or_else(|| number.into(), |value| value.name().into())
}

fn float(decimal: String) -> Value {
    let number = decimal.parse().ok().and_then(Number::from_f64);
    number.map_or(Value::String(decimal), Value::Number)
}

fn key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(value) => value.to_string(),
        MapKey::I32(value) => value.to_string(),
        MapKey::I64(value) => value.to_string(),
        MapKey::U32(value) => value.to_string(),
        MapKey::U64(value) => value.to_string(),
        MapKey::String(value) => value.clone(),
    }
}
