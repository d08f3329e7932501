//! Writes the Kotlin and Swift bindings of a library: `uniffi-bindgen LIBRARY FOLDER`.
#![forbid(unsafe_code)]

use std::error::Error;
use uniffi::{GenerateOptions, SwiftBindingsOptions, TargetLanguage, generate, generate_swift_bindings};

fn main() -> Result<(), Box<dyn Error>> {
    let [library, folder] = std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "expected LIBRARY FOLDER")?;
    generate(GenerateOptions {
        languages: vec![TargetLanguage::Kotlin],
        source: library.clone().into(),
        out_dir: format!("{folder}/kotlin").into(),
        metadata_no_deps: true,
        ..GenerateOptions::default()
    })?;
    generate_swift_bindings(SwiftBindingsOptions {
        generate_swift_sources: true,
        generate_headers: true,
        generate_modulemap: true,
        source: library.into(),
        out_dir: format!("{folder}/swift").into(),
        xcframework: false,
        module_name: Some("RewireFFI".to_owned()),
        modulemap_filename: Some("module.modulemap".to_owned()),
        metadata_no_deps: true,
        link_frameworks: vec![],
        config: None,
    })?;
    Ok(())
}
