//! Writes the JavaScript bindings of a WebAssembly library: `bindgen LIBRARY FOLDER`.
#![forbid(unsafe_code)]

mod order;

use std::error::Error;
use std::path::Path;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<(), Box<dyn Error>> {
    let [library, folder] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "expected LIBRARY FOLDER")?;
    Bindgen::new()
        .input_path(&library)
        .web(true)?
        .omit_default_module_path(false)
        .typescript(true)
        .remove_producers_section(true)
        .generate(&folder)?;
    let name = Path::new(&library).file_stem().ok_or("the library has no name")?.to_string_lossy();
    let bound = Path::new(&folder).join(format!("{name}_bg.wasm"));
    std::fs::write(&bound, order::by_name(&std::fs::read(&bound)?)?)?;
    Ok(())
}
