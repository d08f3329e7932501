//! Objects of typed arrays.

use crate::{Failure, Lists, Requests, Values};
use js_sys::{Array, BigInt64Array, Float32Array, Float64Array, Int32Array, Object, Reflect, Uint32Array};
use rewire::rank::{RankedColumns, User, whole};
use wasm_bindgen::prelude::*;

/// The result of a ranking.
pub fn scores(scores: &RankedColumns) -> Object {
    let users: Array = scores.users.iter().map(user).collect();
    object([
        ("users", users.into()),
        ("offsets", words(&scores.offsets).into()),
        ("items", BigInt64Array::from(scores.items.as_slice()).into()),
        ("positions", words(&scores.positions).into()),
        ("scores", Float64Array::from(scores.scores.as_slice()).into()),
        ("logits", Float32Array::from(scores.logits.as_slice()).into()),
        ("droppedEvents", words(&scores.dropped_events).into()),
    ])
}

/// An object with these fields.
pub fn object<const N: usize>(fields: [(&str, JsValue); N]) -> Object {
    let object = Object::new();
    for (name, value) in fields {
        // Setting a property of a new object does not fail.
        let _ = Reflect::set(&object, &name.into(), &value);
    }
    object
}

/// Counts as 32-bit words: a count of values in a browser's memory does not exceed them.
pub fn words(counts: &[i64]) -> Uint32Array {
    let words: Vec<u32> = counts.iter().map(|&count| u32::try_from(count).unwrap_or(u32::MAX)).collect();
    Uint32Array::from(words.as_slice())
}

fn user(user: &User) -> JsValue {
    match user {
        User::Name(name) => name.into(),
        User::Number(number) => (*number as f64).into(),
    }
}

/// Requests of `users`, `contextual`, `history` and `candidates`.
pub fn requests(columns: &Object) -> Result<Requests, Failure> {
    let users = field(columns, "users");
    let users = users.dyn_ref::<Array>().ok_or_else(|| Failure::of_request("`users` must be an array"))?;
    Ok(Requests {
        users: users.iter().map(|user| read_user(&user)).collect::<Result<_, _>>()?,
        contextual: entries(columns, "contextual", values)?,
        history: entries(columns, "history", lists)?,
        candidates: entries(columns, "candidates", lists)?,
    })
}

fn read_user(user: &JsValue) -> Result<User, Failure> {
    let number = || user.as_f64().and_then(whole).map(User::Number);
    let user = user.as_string().map(User::Name).or_else(number);
    user.ok_or_else(|| Failure::of_request("`users` must hold strings or whole numbers"))
}

fn entries<T>(
    columns: &Object,
    group: &str,
    read: fn(&str, &JsValue) -> Result<T, Failure>,
) -> Result<Vec<(String, T)>, Failure> {
    let Ok(object) = field(columns, group).dyn_into::<Object>() else { return Ok(vec![]) };
    let entry = |entry: JsValue| {
        let entry: Array = entry.unchecked_into();
        let name = entry.get(0).as_string().unwrap_or_default();
        let value = read(&format!("{group}.{name}"), &entry.get(1))?;
        Ok((name, value))
    };
    Object::entries(&object).iter().map(entry).collect()
}

fn lists(title: &str, value: &JsValue) -> Result<Lists, Failure> {
    let part = |name: &str| values(&format!("{title}.{name}"), &field(value, name));
    Ok(Lists { offsets: part("offsets")?, values: part("values")? })
}

fn values(title: &str, value: &JsValue) -> Result<Values, Failure> {
    if let Some(values) = value.dyn_ref::<Int32Array>() {
        return Ok(Values::I32(values.to_vec()));
    }
    if let Some(values) = value.dyn_ref::<Uint32Array>() {
        return Ok(Values::U32(values.to_vec()));
    }
    let values = value.dyn_ref::<BigInt64Array>().map(|values| Values::I64(values.to_vec()));
    values.ok_or_else(|| Failure::of_request(format!("`{title}` must be an Int32Array, Uint32Array or BigInt64Array")))
}

/// A property; undefined if it does not exist.
pub fn field(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}
