//! Tables of columns, and predictions.

use super::objects::{field, object, words};
use crate::Failure;
use js_sys::{
    Array, BigInt64Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, JsString, Map, Object,
    Reflect, Uint8Array, Uint16Array, Uint32Array,
};
use rewire::predict::{Column, Data, Lists, Offsets, OwnedCell, Predicted, PredictedColumn};
use rewire::rank::whole;
use wasm_bindgen::prelude::*;

/// Maximum nesting of lists.
const DEPTH: usize = 4;

/// The columns with these names. Missing columns are left out.
pub fn columns<'n>(table: &Object, names: &'n [String]) -> Result<Vec<(&'n str, Column<'static>)>, Failure> {
    let values = names.iter().map(|name| (name.as_str(), field(table, name)));
    let present = values.filter(|(_, value)| !value.is_undefined());
    present.map(|(name, value)| Ok((name, column(name, &value, 0)?))).collect()
}

/// A typed array, an array of values, or `{ offsets, values }` for lists and `{ offsets, keys, values }` for maps.
fn column(title: &str, value: &JsValue, depth: usize) -> Result<Column<'static>, Failure> {
    if depth > DEPTH {
        return Err(too_deep(title));
    }
    if let Some(data) = typed(value) {
        return Ok(Column::new(data));
    }
    if let Some(values) = value.dyn_ref::<Array>() {
        let cells = values.iter().map(|value| cell(title, &value, 0)).collect::<Result<_, _>>()?;
        return Column::of_cells(cells).map_err(|mixed| Failure::of_request(format!("`{title}`: {mixed}")));
    }
    let part = |name: &str| column(&format!("{title}.{name}"), &field(value, name), depth + 1);
    let offsets = match typed(&field(value, "offsets")) {
        Some(Data::I32(offsets)) => Offsets::I32(offsets),
        Some(Data::I64(offsets)) => Offsets::I64(offsets),
        _ => {
            let expected =
                "an array, a typed array, or lists `{ offsets, values }` with offsets in a typed array of integers";
            return Err(Failure::of_request(format!("`{title}` must be {expected}")));
        }
    };
    Ok(Column::new(match field(value, "keys").is_undefined() {
        true => Data::List { offsets, items: Box::new(part("values")?) },
        false => Data::Map { offsets, keys: Box::new(part("keys")?), values: Box::new(part("values")?) },
    }))
}

/// The values of a typed array.
fn typed(value: &JsValue) -> Option<Data<'static>> {
    macro_rules! integers {
        ($($array:ty),*) => {
            $(if let Some(values) = value.dyn_ref::<$array>() {
                return Some(Data::I64(values.to_vec().into_iter().map(i64::from).collect()));
            })*
        };
    }
    integers!(Int8Array, Uint8Array, Int16Array, Uint16Array, Uint32Array);
    if let Some(values) = value.dyn_ref::<Int32Array>() {
        return Some(Data::I32(values.to_vec().into()));
    }
    if let Some(values) = value.dyn_ref::<BigInt64Array>() {
        return Some(Data::I64(values.to_vec().into()));
    }
    if let Some(values) = value.dyn_ref::<Float32Array>() {
        return Some(Data::F32(values.to_vec().into()));
    }
    value.dyn_ref::<Float64Array>().map(|values| Data::F64(values.to_vec().into()))
}

/// A value of a row: null, a number, a bigint, a string, an array, or a map or object from ids to weights.
fn cell(title: &str, value: &JsValue, depth: usize) -> Result<OwnedCell, Failure> {
    if depth > DEPTH {
        return Err(too_deep(title));
    }
    let inner = |value: JsValue| cell(title, &value, depth + 1);
    let pairs = |entries: &mut dyn Iterator<Item = JsValue>| -> Result<OwnedCell, Failure> {
        let pair = |entry: JsValue| {
            let entry: Array = entry.unchecked_into();
            Ok((inner(entry.get(0))?, inner(entry.get(1))?))
        };
        entries.map(pair).collect::<Result<_, _>>().map(OwnedCell::Map)
    };
    if value.is_null() || value.is_undefined() {
        return Ok(OwnedCell::Null);
    }
    if let Some(number) = value.as_f64() {
        return Ok(whole(number).map_or(OwnedCell::Float(number), OwnedCell::Int));
    }
    if let Some(text) = value.dyn_ref::<JsString>() {
        return Ok(OwnedCell::Text(text.into()));
    }
    if let Some(truth) = value.as_bool() {
        return Ok(OwnedCell::Int(i64::from(truth)));
    }
    if value.is_bigint() {
        let integer = i64::try_from(value.clone());
        return integer.map(OwnedCell::Int).map_err(|_| wrong(title, "integers of 64 bits"));
    }
    if let Some(values) = value.dyn_ref::<Array>() {
        return values.iter().map(inner).collect::<Result<_, _>>().map(OwnedCell::List);
    }
    match (typed(value), value.dyn_ref::<Map>(), value.dyn_ref::<Object>()) {
        (Some(Data::I32(values)), ..) => {
            Ok(OwnedCell::List(values.iter().map(|&value| OwnedCell::Int(value.into())).collect()))
        }
        (Some(Data::I64(values)), ..) => {
            Ok(OwnedCell::List(values.iter().map(|&value| OwnedCell::Int(value)).collect()))
        }
        (Some(Data::F32(values)), ..) => {
            Ok(OwnedCell::List(values.iter().map(|&value| OwnedCell::Float(value.into())).collect()))
        }
        (Some(Data::F64(values)), ..) => {
            Ok(OwnedCell::List(values.iter().map(|&value| OwnedCell::Float(value)).collect()))
        }
        (_, Some(map), _) => pairs(&mut Array::from(map).iter()),
        (_, None, Some(object)) => pairs(&mut Object::entries(object).iter()),
        _ => Err(wrong(title, "numbers, strings, arrays, and objects from ids to weights")),
    }
}

fn wrong(title: &str, expected: &str) -> Failure {
    Failure::of_request(format!("`{title}` must hold {expected}"))
}

fn too_deep(title: &str) -> Failure {
    wrong(title, &format!("lists at most {DEPTH} deep"))
}

/// `{ counts, columns }`: the number of predictions per row of the table, and per column a `Float32Array` or lists `{
/// offsets, values }`.
pub fn predictions(outputs: &[PredictedColumn], predicted: &Predicted) -> Object {
    let columns = Object::new();
    for (output, Lists { ends, values }) in outputs.iter().zip(&predicted.columns) {
        let values = Float32Array::from(values.as_slice());
        let column: JsValue = match output.is_list {
            true => {
                let offsets: Vec<i64> = std::iter::once(0).chain(ends.iter().map(|&end| end as i64)).collect();
                object([("offsets", words(&offsets).into()), ("values", values.into())]).into()
            }
            false => values.into(),
        };
        // Setting a property of a new object does not fail.
        let _ = Reflect::set(&columns, &output.name.as_str().into(), &column);
    }
    let counts: Vec<i64> = predicted.counts.iter().map(|&count| count as i64).collect();
    object([("counts", words(&counts).into()), ("columns", columns.into())])
}
