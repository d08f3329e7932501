//! Builds the library for Kotlin and Swift into a folder.

use crate::shell::{cargo, root, run as run_command};
use crate::small::Carried;
use std::io;
use std::path::Path;

/// Builds the library for this machine or for another target, and writes libraries and bindings to a folder.
pub(crate) fn run(folder: &Path, carried: Carried<'_>) -> Result<(), String> {
    let kinds: &[&str] = match carried.target {
        // An iOS app links it statically.
        Some(target) if target.contains("-apple-ios") => &["staticlib"],
        _ => &["staticlib", "cdylib"],
    };
    let mut built = root().join("target");
    let mut libraries = folder.join("lib");
    if let Some(target) = carried.target {
        built.push(target);
        libraries.push(target);
    }
    for kind in kinds {
        carried.build("rewire-mobile", kind)?;
    }
    built.push("small");
    place(&built, &libraries).map_err(|error| format!("cannot write to {}: {error}", libraries.display()))?;
    write_sources(&built.join("librewire_mobile.a"), folder)
}

fn place(built: &Path, libraries: &Path) -> io::Result<()> {
    std::fs::create_dir_all(libraries)?;
    for name in ["librewire_mobile.a", "librewire_mobile.so", "librewire_mobile.dylib"] {
        let from = built.join(name);
        if from.exists() {
            std::fs::copy(from, libraries.join(name))?;
        }
    }
    Ok(())
}

/// Generates the Kotlin and Swift bindings of a library. The generator is not a workspace member, because nothing else uses it.
pub(crate) fn write_sources(library: &Path, folder: &Path) -> Result<(), String> {
    let mut command = cargo(&["run", "--quiet", "--manifest-path", "xtask/uniffi-bindgen/Cargo.toml"]);
    command.args(["--target-dir", "target/uniffi-bindgen", "--"]).arg(library).arg(folder);
    run_command(command)
}
