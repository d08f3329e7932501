//! The library in parts: without some of its features, and for the web.

use crate::shell::{cargo, run as run_command};
use std::path::Path;
use std::process::Command;

/// Sets of features that an app may take: each feature is in one of them and not in the other.
const FEATURES: [&str; 2] = ["cpu,parallel", "emit,files,gpu"];

/// More sets, which take as long again.
const MORE_FEATURES: [&str; 2] = ["", "cpu,gpu,parallel"];

pub(crate) const WEB: &str = "wasm32-unknown-unknown";

/// Lints of the libraries with some of their features.
pub(crate) fn lint() -> Result<(), String> {
    FEATURES.into_iter().try_for_each(lint_with)
}

/// Lints of the libraries with more sets of features, of those for apps with packages alone, and of the program without its own.
pub(crate) fn lint_more() -> Result<(), String> {
    MORE_FEATURES.into_iter().try_for_each(lint_with)?;
    let of_apps = ["-p", "rewire-capi", "-p", "rewire-mobile", "--no-default-features", "--features", "gpu,quiet"];
    run_command(cargo(&[&["clippy"], &of_apps[..], &["--", "-D", "warnings"]].concat()))?;
    run_command(cargo(&["clippy", "-p", "rewire-cli", "--no-default-features", "--", "-D", "warnings"]))
}

fn lint_with(features: &str) -> Result<(), String> {
    let packages = ["-p", "rewire-runtime", "-p", "rewire", "--no-default-features", "--features", features];
    run_command(cargo(&[&["clippy"], &packages[..], &["--", "-D", "warnings"]].concat()))
}

/// Checks the library for browsers, where there is a standard library for them.
pub(crate) fn web() -> Result<(), String> {
    if !has_web() {
        eprintln!("\nxtask: the library is not checked for the web: `rustup target add {WEB}` installs what does it");
        return Ok(());
    }
    run_command(cargo(&["check", "-p", "rewire-web", "--target", WEB]))
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
