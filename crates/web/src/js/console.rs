//! Warnings and panics on the browser's console.

use rewire::events::{Level, listen};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn warn(text: &str);

    #[wasm_bindgen(js_namespace = console)]
    fn error(text: &str);
}

/// Installs the handlers.
pub fn attach() {
    std::panic::set_hook(Box::new(|panic| error(&panic.to_string())));
    listen(|event| *event.level() <= Level::WARN, |_, text| warn(&text));
}
