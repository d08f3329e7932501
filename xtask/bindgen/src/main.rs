//! Writes the JavaScript of a WebAssembly library: `bindgen LIBRARY FOLDER`.
#![forbid(unsafe_code)]

use std::error::Error;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<(), Box<dyn Error>> {
    let [library, folder] = std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "expected LIBRARY FOLDER")?;
    Bindgen::new()
        .input_path(library)
        .web(true)?
        .omit_default_module_path(false)
        .typescript(true)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)?;
    Ok(())
}
