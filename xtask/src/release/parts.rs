//! The parts of a release. Program, wheel and C library have one profile, flags and features: their libraries are compiled once.

use super::VERSION;
use super::dist::{Dist, copy, created, write};
use crate::shell::{cargo, output_of, root, run};
use crate::small::remapped;
use crate::{capi, venv, web};
use std::path::PathBuf;
use std::process::Command;

/// A file of a release.
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

/// Compiles with the features that all packages of a release need together.
pub(super) const BUILD: [&str; 9] =
    ["build", "--release", "--locked", "-p", "rewire-cli", "-p", "rewire-capi", "--features", "full"];

/// The libraries of the archive for C. The static one is ten times as large without optimization across crates.
const LIBRARIES: [&str; 2] = ["librewire_c.so", "librewire_c.dylib"];

/// A build whose bytes do not depend on the folders and the time.
pub(super) fn reproducible(mut command: Command, dist: &Dist) -> Command {
    // The profile's `strip` does not reach packages with options of their own.
    let flags: Vec<String> = remapped().into_iter().chain(["-Cstrip=symbols".to_owned()]).collect();
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    command.env("SOURCE_DATE_EPOCH", &dist.epoch).env("CARGO_INCREMENTAL", "0");
    command
}

/// Compiles the program and the C library together, and returns their folder.
fn compiled(dist: &Dist) -> Result<PathBuf, String> {
    run(reproducible(cargo(&[&BUILD[..], &["--bin", "rewire", "--lib"]].concat()), dist))?;
    Ok(root().join("target/release"))
}

/// The program for this system with its server, completions and manual pages.
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

/// The shared C library with its header.
fn library(dist: &Dist) -> Result<(), String> {
    let built = compiled(dist)?;
    let staged = dist.stage("rewire-c")?;
    capi::place(&built, &staged, &LIBRARIES)?;
    dist.archive(&staged, &library_archive(dist))
}

pub(super) fn library_archive(dist: &Dist) -> String {
    format!("rewire-c-{VERSION}-{}.tar.gz", dist.target)
}

/// The wheel, for every Python from 3.11 on.
fn wheel(dist: &Dist) -> Result<(), String> {
    venv::install(&["maturin>=1.10,<2"])?;
    let mut command = Command::new(venv::program("maturin"));
    command.args(["build", "--release", "--locked", "--features", "rewire-cli/full", "--out"]).arg(&dist.folder);
    command.current_dir(root().join("crates/python"));
    run(reproducible(command, dist))
}

/// The package for npm.
fn package(dist: &Dist) -> Result<(), String> {
    let staged = dist.stage("package")?;
    web::write_library(&staged)?;
    dist.archive(&staged, &package_archive())
}

pub(super) fn package_archive() -> String {
    format!("rewire-web-{VERSION}.tgz")
}
