//! Objects of typed arrays.

use js_sys::{Object, Reflect, Uint32Array};
use wasm_bindgen::prelude::*;

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

/// A property; undefined if it does not exist.
pub fn field(object: &JsValue, name: &str) -> JsValue {
    Reflect::get(object, &name.into()).unwrap_or(JsValue::UNDEFINED)
}
