//! The parts of a release. Program, wheel and C library share profile, flags and features, so that their dependencies are compiled once.

use super::VERSION;
use super::dist::{Dist, copy, created, write};
use crate::shell::{cargo, output_of, root, run};
use crate::small::remapped;
use crate::{capi, venv, web};
use std::path::PathBuf;
use std::process::Command;

/// A part of a release, which becomes one or more files.
#[derive(Debug)]
pub(crate) struct Part {
    pub name: &'static str,
    pub(super) build: fn(&Dist) -> Result<(), String>,
}

pub(super) const PARTS: [Part; 4] = [
    Part { name: "program", build: program },
    Part { name: "c", build: library },
    Part { name: "wheel", build: wheel },
    Part { name: "npm", build: package },
];

/// Cargo arguments that enable the features of all packages of a release.
pub(super) const BUILD: [&str; 9] =
    ["build", "--release", "--locked", "-p", "rewire-cli", "-p", "rewire-capi", "--features", "full"];

/// Libraries in the C archive. The static library is excluded: without cross-crate optimization it is ten times as large.
const LIBRARIES: [&str; 2] = ["librewire_c.so", "librewire_c.dylib"];

/// Makes the bytes of a build independent of its folders and its time.
pub(super) fn reproducible(mut command: Command, dist: &Dist) -> Command {
    // The profile's `strip` does not apply to packages with separate profile options.
    let flags: Vec<String> = remapped().into_iter().chain(["-Cstrip=symbols".to_owned()]).collect();
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    command.env("SOURCE_DATE_EPOCH", &dist.epoch).env("CARGO_INCREMENTAL", "0");
    command
}

/// Compiles the program and the C library together, and returns the folder that contains them.
fn compiled(dist: &Dist) -> Result<PathBuf, String> {
    run(reproducible(cargo(&[&BUILD[..], &["--bin", "rewire", "--lib"]].concat()), dist))?;
    Ok(root().join("target/release"))
}

/// Builds the archive of the program for this system, with server, completions and manual pages.
fn program(dist: &Dist) -> Result<(), String> {
    let program = compiled(dist)?.join("rewire");
    let staged = dist.stage("rewire")?;
    copy(&program, &staged.join("rewire"))?;
    let completions = created(&staged.join("completions"))?;
    for (shell, file) in [("bash", "rewire.bash"), ("fish", "rewire.fish"), ("zsh", "_rewire")] {
        write(&completions.join(file), &output_of(Command::new(&program).args(["completions", shell]))?)?;
    }
    output_of(Command::new(&program).args(["man", "--out"]).arg(staged.join("man")))?;
    dist.archive(&staged, &program_archive(dist))
}

pub(super) fn program_archive(dist: &Dist) -> String {
    format!("rewire-{VERSION}-{}.tar.gz", dist.target)
}

/// Builds the archive of the shared C library and its header.
fn library(dist: &Dist) -> Result<(), String> {
    let built = compiled(dist)?;
    let staged = dist.stage("rewire-c")?;
    capi::place(&built, &staged, &LIBRARIES)?;
    dist.archive(&staged, &library_archive(dist))
}

pub(super) fn library_archive(dist: &Dist) -> String {
    format!("rewire-c-{VERSION}-{}.tar.gz", dist.target)
}

/// Builds the wheel, for Python 3.11 and later.
fn wheel(dist: &Dist) -> Result<(), String> {
    venv::install(&["maturin>=1.10,<2"])?;
    let mut command = Command::new(venv::program("maturin"));
    command.args(["build", "--release", "--locked", "--features", "rewire-cli/full", "--out"]).arg(&dist.folder);
    command.current_dir(root().join("crates/python"));
    run(reproducible(command, dist))
}

/// Builds the npm package.
fn package(dist: &Dist) -> Result<(), String> {
    let staged = dist.stage("package")?;
    web::write_library(&staged)?;
    dist.archive(&staged, &package_archive())
}

pub(super) fn package_archive() -> String {
    format!("rewire-web-{VERSION}.tgz")
}
