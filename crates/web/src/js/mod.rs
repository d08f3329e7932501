//! The functions that JavaScript calls.

mod console;
#[cfg(feature = "decoder")]
mod decoder;
#[cfg(feature = "models")]
mod models;
#[cfg(any(feature = "models", feature = "ranker"))]
mod objects;
#[cfg(feature = "ranker")]
mod ranker;
#[cfg(feature = "models")]
mod table;
#[cfg(feature = "models")]
mod tensors;

use crate::Failure;
use js_sys::{Error, Reflect};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(start)]
fn start() {
    console::attach();
}

/// Makes this worker a thread of the library whose memory it received, until the worker ends.
#[cfg(feature = "threads")]
#[wasm_bindgen]
pub fn help() {
    rewire::runtime::cpu::parallel::help()
}

impl From<Failure> for JsValue {
    fn from(Failure { code, message }: Failure) -> Self {
        let error = Error::new(&message);
        error.set_name("RewireError");
        // Setting a property of a new object does not fail.
        let _ = Reflect::set(&error, &"code".into(), &code.into());
        error.into()
    }
}
