//! Builds the C library into a folder.

use crate::shell::root;
use crate::small::Carried;
use std::path::Path;

/// Builds the small library, with all features or only for packages, and copies header, libraries and the `pkg-config` file to a folder.
pub(crate) fn run(prefix: &Path, packages: bool) -> Result<(), String> {
    for kind in ["cdylib", "staticlib"] {
        Carried { packages, ..Carried::default() }.build("rewire-capi", kind)?;
    }
    place(&root().join("target/small"), prefix, &["librewire_c.a", "librewire_c.so", "librewire_c.dylib"])
}

/// Copies the header, the `pkg-config` file, and the libraries in `names` that exist in the folder `built`.
pub(crate) fn place(built: &Path, prefix: &Path, names: &[&str]) -> Result<(), String> {
    let description = read("crates/capi/rewire.pc.in")?.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    let libraries = prefix.join("lib");
    let placed = (|| {
        std::fs::create_dir_all(prefix.join("include"))?;
        std::fs::create_dir_all(libraries.join("pkgconfig"))?;
        std::fs::copy(root().join("crates/capi/include/rewire.h"), prefix.join("include/rewire.h"))?;
        std::fs::write(libraries.join("pkgconfig/rewire.pc"), description)?;
        names.iter().try_for_each(|name| {
            let from = built.join(name);
            if from.exists() { std::fs::copy(from, libraries.join(name)).map(|_| ()) } else { Ok(()) }
        })
    })();
    placed.map_err(|error: std::io::Error| format!("cannot write to {}: {error}", prefix.display()))
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}
