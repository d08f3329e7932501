//! Rankers, and requests and scores as typed arrays.

use super::objects::{field, object, words};
use crate::{Failure, Lists, Opened, Requests, Values};
use js_sys::{Array, BigInt64Array, Float32Array, Float64Array, Int32Array, Object, Uint32Array};
use rewire::rank::{RankedColumns, User, whole};
use wasm_bindgen::prelude::*;

/// A model, ready to rank.
#[wasm_bindgen]
#[derive(Clone, Debug)]
pub struct Ranker(Opened);

#[wasm_bindgen]
impl Ranker {
    /// Opens a package with the backend `auto`, `wgpu` or `cpu`.
    pub async fn open(package: Vec<u8>, kernel: String) -> Result<Ranker, JsValue> {
        Ok(Self(Opened::open(package, &kernel).await?))
    }

    /// Ranks requests, one line of JSON each; returns an object of typed arrays.
    pub async fn rank(&self, lines: String) -> Result<Object, JsValue> {
        Ok(scores(&self.0.rank_json(&lines).await?))
    }

    /// Ranks requests given as typed arrays; returns an object of typed arrays.
    #[wasm_bindgen(js_name = rankColumns)]
    pub async fn rank_columns(&self, columns: Object) -> Result<Object, JsValue> {
        let requests = requests(&columns)?;
        Ok(scores(&self.0.rank_columns(&requests).await?))
    }

    /// The inputs and outputs of the model as text.
    pub fn describe(&self) -> String {
        self.0.describe()
    }

    /// A description of the model and its device, as JSON.
    pub fn report(&self) -> String {
        self.0.report().to_string()
    }
}

/// The result of a ranking.
fn scores(scores: &RankedColumns) -> Object {
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

fn user(user: &User) -> JsValue {
    match user {
        User::Name(name) => name.into(),
        User::Number(number) => (*number as f64).into(),
    }
}

/// Requests of `users`, `contextual`, `history` and `candidates`.
fn requests(columns: &Object) -> Result<Requests, Failure> {
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
