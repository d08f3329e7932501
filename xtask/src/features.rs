//! Checks the library with only some of its features, and for the web.

use crate::shell::{cargo, run as run_command};
use std::path::Path;
use std::process::Command;

/// Features of the library for browsers.
const FEATURES_OF_WEB: &str = "cpu,gpu";

/// Further feature sets. Linting each takes a minute on two cores.
const MORE_FEATURES: [&str; 4] = ["", "cpu,parallel", "cpu,gpu,parallel", "emit,files,parallel"];

pub(crate) const WEB: &str = "wasm32-unknown-unknown";

/// Lints the libraries with further feature sets, the libraries that only support packages, and the program with no and with all optional
/// features. Runs tests that need these sets.
pub(crate) fn lint_more() -> Result<(), String> {
    MORE_FEATURES.into_iter().try_for_each(lint_with)?;
    let of_apps = ["-p", "rewire-capi", "-p", "rewire-mobile", "--no-default-features", "--features", "gpu,quiet"];
    run_command(cargo(&[&["clippy"], &of_apps[..], &["--", "-D", "warnings"]].concat()))?;
    run_command(cargo(&["clippy", "-p", "rewire-cli", "--no-default-features", "--", "-D", "warnings"]))?;
    run_command(cargo(&["test", "-p", "rewire-import", "--no-default-features", "--test", "without_readers"]))?;
    run_command(cargo(&["clippy", "-p", "rewire-cli", "--features", "hnsw", "--", "-D", "warnings"]))?;
    run_command(cargo(&["test", "-p", "rewire-cli", "--features", "hnsw", "--lib", "retrieve"]))
}

fn lint_with(features: &str) -> Result<(), String> {
    let packages = ["-p", "rewire-runtime", "-p", "rewire", "--no-default-features", "--features", features];
    run_command(cargo(&[&["clippy"], &packages[..], &["--", "-D", "warnings"]].concat()))
}

/// Checks the library for browsers. If the toolchain has no standard library for the web, lints its features on this machine instead.
pub(crate) fn web() -> Result<(), String> {
    if !has_web() {
        eprintln!("\nxtask: the library is not checked for the web: `rustup target add {WEB}` installs what does it");
        return lint_with(FEATURES_OF_WEB);
    }
    for features in ["gpu,ranker", "gpu,models", "gpu,decoder", "threads,models,ranker"] {
        let chosen = ["--no-default-features", "--features", features];
        run_command(cargo(&[&["check", "-p", "rewire-web", "--target", WEB][..], &chosen].concat()))?;
    }
    Ok(())
}

/// True if the toolchain has the standard library of the web.
pub(crate) fn has_web() -> bool {
    has_target(WEB)
}

/// True if the toolchain has the standard library of a target.
pub(crate) fn has_target(target: &str) -> bool {
    let found = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    found.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}
