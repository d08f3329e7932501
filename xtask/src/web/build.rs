use crate::features::{WEB, has_web};
use crate::shell::{cargo, rewire, root, run, succeeds};
use crate::small::remapped;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of the page. The next constants are the library's files other than its modules, its modules, and the demo's data with
/// their names.
const PAGE: [&str; 5] = ["index.html", "style.css", "page.js", "view.js", "demo.js"];
const LIBRARY: [&str; 8] =
    ["rewire.js", "connection.js", "library.js", "source.js", "worker.js", "helper.js", "rewire.d.ts", "package.json"];
/// The features of each module, and its name. A page loads the one whose classes it uses.
const LIBRARIES: [(&str, &str); 3] =
    [("gpu,ranker", "rewire_web"), ("gpu,models", "rewire_web_models"), ("gpu,decoder", "rewire_web_decoder")];
const DATA: [(&str, &str); 2] = [("interactions.jsonl", "users.jsonl"), ("items.csv", "items.csv")];

/// Flags that make the library smaller if the standard library is compiled too. A panic becomes a trap without a message, which callers
/// still receive as a `crashed` error.
const SMALL: &str = "-Zunstable-options -Cpanic=immediate-abort";

/// Enables SIMD, which all current browsers support. A module that contains any SIMD does not load without it.
const VECTORS: &str = "-Ctarget-feature=+simd128";

/// Flags of the library with threads: memory that workers share, and thread-local memory for each worker.
const SHARED: [&str; 8] = [
    "-Ctarget-feature=+atomics,+bulk-memory,+mutable-globals",
    "-Clink-arg=--shared-memory",
    "-Clink-arg=--import-memory",
    "-Clink-arg=--max-memory=1073741824",
    "-Clink-arg=--export=__wasm_init_tls",
    "-Clink-arg=--export=__tls_size",
    "-Clink-arg=--export=__tls_align",
    "-Clink-arg=--export=__tls_base",
];

/// True if the source of the standard library is installed.
fn has_source() -> bool {
    let Ok(sysroot) = Command::new("rustc").args(["--print", "sysroot"]).output() else { return false };
    Path::new(String::from_utf8_lossy(&sysroot.stdout).trim()).join("lib/rustlib/src/rust/library").is_dir()
}

/// A missing requirement of the build, and how to install it.
pub(crate) fn missing() -> Option<String> {
    let has_linker = || succeeds("wasm-ld", &["--version"]);
    (!(has_web() || has_source() && has_linker())).then(|| {
        format!("`rustup target add {WEB}` installs what builds it, or on Debian `apt-get install rustc-web rust-web-src lld`")
    })
}

/// Builds the page into a folder.
pub(crate) fn build() -> Result<PathBuf, String> {
    let folder = root().join("target/page");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    write_library(&folder)?;
    package(&folder.join("demo.rewire"))?;
    for file in PAGE {
        copy(&root().join("web").join(file), &folder.join(file))?;
    }
    for (from, to) in DATA {
        copy(&root().join("crates/cli/demo").join(from), &folder.join(to))?;
    }
    Ok(folder)
}

/// Builds the library into a folder, which then contains the files of the npm package.
pub(crate) fn write_library(folder: &Path) -> Result<(), String> {
    for (features, name) in LIBRARIES {
        bind(&library(features, name)?, folder)?;
    }
    match has_source() {
        true => bind(&library_with_threads()?, folder)?,
        false => {
            eprintln!(
                "\nxtask: the CPU runs one thread and the library is larger: `rustup component add rust-src` installs what builds more"
            )
        }
    }
    LIBRARY.into_iter().try_for_each(|file| copy(&root().join("web").join(file), &folder.join(file)))
}

/// Compiles the library with the classes of some features, and copies it to a file of this name. It has one thread.
fn library(features: &str, name: &str) -> Result<PathBuf, String> {
    let mut command = match has_source() {
        true => from_source("target", VECTORS)?,
        false => compile("target", VECTORS)?,
    };
    command.args(["--no-default-features", "--features", features]);
    run(command)?;
    let named = root().join("target").join(name).with_extension("wasm");
    copy(&built("target"), &named)?;
    Ok(named)
}

/// Compiles the CPU-only library with threads. WebGPU objects cannot be used by other threads.
fn library_with_threads() -> Result<PathBuf, String> {
    let folder = "target/threads";
    let mut command = from_source(folder, &format!("{VECTORS} {}", SHARED.join(" ")))?;
    command.args(["--no-default-features", "--features", "threads,models,ranker"]);
    run(command)?;
    let named = root().join(folder).join("rewire_web_threads.wasm");
    copy(&built(folder), &named)?;
    Ok(named)
}

fn compile(folder: &str, flags: &str) -> Result<Command, String> {
    if let Some(missing) = missing() {
        return Err(missing);
    }
    let target = ["--target", WEB, "--target-dir", folder];
    let mut command = cargo(&[&["build", "--package", "rewire-web", "--profile", "web"], &target[..]].concat());
    // Makes the module's bytes independent of the build folder.
    let flags = flags.split(' ').map(str::to_owned).chain(remapped());
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\u{1f}"));
    Ok(command)
}

/// [`compile`] including the standard library. `RUSTC_BOOTSTRAP` allows this on stable compilers.
fn from_source(folder: &str, flags: &str) -> Result<Command, String> {
    let mut command = compile(folder, &format!("{flags} {SMALL}"))?;
    command.args(["-Zbuild-std=std,panic_abort", "-Zbuild-std-features=optimize_for_size"]).env("RUSTC_BOOTSTRAP", "1");
    if !has_web() {
        command.env(variable("LINKER"), "wasm-ld");
    }
    Ok(command)
}

/// Name of the environment variable for a setting of the web target.
fn variable(name: &str) -> String {
    format!("CARGO_TARGET_{}_{name}", WEB.to_uppercase().replace('-', "_"))
}

fn built(folder: &str) -> PathBuf {
    root().join(folder).join(WEB).join("web/rewire_web.wasm")
}

/// Writes the JavaScript bindings of the library next to it. The generator is not a workspace member, because nothing else uses it.
fn bind(library: &Path, folder: &Path) -> Result<(), String> {
    let mut command = cargo(&["run", "--quiet", "--manifest-path", "xtask/bindgen/Cargo.toml"]);
    command.args(["--target-dir", "target/bindgen", "--"]).arg(library).arg(folder);
    run(command)
}

/// Packages the demo model.
fn package(path: &Path) -> Result<(), String> {
    let mut command = rewire(&["package", "--out"]);
    command.arg(path);
    run(command)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_package_for_npm_lists_the_files_of_the_library() {
        let text = std::fs::read_to_string(root().join("web/package.json")).unwrap();
        let manifest: Value = serde_json::from_str(&text).unwrap();
        let listed: Vec<&str> = manifest["files"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let is_listed = |file: &&str| listed.contains(file) || *file == "package.json";
        assert!(LIBRARY.iter().all(is_listed) && listed.contains(&"rewire_web*"), "{listed:?}");
    }
}
