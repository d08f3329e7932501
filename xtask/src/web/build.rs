use crate::rooms::{WEB, has_web};
use crate::shell::{cargo, root, run, succeeds};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of the page, and what the demo's data are called there.
const PAGE: [&str; 5] = ["index.html", "style.css", "page.js", "rewire.js", "worker.js"];
const DATA: [(&str, &str); 2] = [("interactions.jsonl", "users.jsonl"), ("items.csv", "items.csv")];

/// The standard library of the web: as rustup has it, or from its source, as Debian's toolchain takes it.
enum Library {
    Built,
    Source,
}

impl Library {
    fn find() -> Option<Self> {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
        let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
        let has_source =
            || sysroot.join("lib/rustlib/src/rust/library").is_dir() && succeeds("wasm-ld", &["--version"]);
        if has_web() { Some(Self::Built) } else { has_source().then_some(Self::Source) }
    }
}

/// What is not there to build the page, and what installs it.
pub(crate) fn missing() -> Option<String> {
    Library::find().is_none().then(|| {
        format!("`rustup target add {WEB}` installs what builds it, or on Debian `apt-get install rustc-web rust-web-src lld`")
    })
}

/// Builds the folder of the page.
pub(crate) fn build() -> Result<PathBuf, String> {
    let library = library()?;
    let folder = root().join("target/page");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    bind(&library, &folder)?;
    package(&folder.join("demo.rewire"))?;
    for file in PAGE {
        copy(&root().join("web").join(file), &folder.join(file))?;
    }
    for (from, to) in DATA {
        copy(&root().join("crates/cli/demo").join(from), &folder.join(to))?;
    }
    Ok(folder)
}

/// Compiles the library.
fn library() -> Result<PathBuf, String> {
    let missing = || missing().unwrap_or_default();
    let mut command = cargo(&["build", "--package", "rewire-web", "--target", WEB, "--profile", "web"]);
    if let Library::Source = Library::find().ok_or_else(missing)? {
        let variable = format!("CARGO_TARGET_{}_LINKER", WEB.to_uppercase().replace('-', "_"));
        command.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1").env(variable, "wasm-ld");
    }
    run(command)?;
    Ok(root().join("target").join(WEB).join("web/rewire_web.wasm"))
}

/// Writes the JavaScript of the library beside it. What does is no member of the workspace, as nothing else needs it.
fn bind(library: &Path, folder: &Path) -> Result<(), String> {
    let mut command = cargo(&["run", "--quiet", "--manifest-path", "xtask/bindgen/Cargo.toml"]);
    command.args(["--target-dir", "target/bindgen", "--"]).arg(library).arg(folder);
    run(command)
}

/// The demo's model.
fn package(path: &Path) -> Result<(), String> {
    let mut command = cargo(&["run", "--quiet", "--release", "--package", "rewire-cli", "--", "package", "--out"]);
    command.arg(path);
    run(command)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}
