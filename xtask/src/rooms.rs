//! The library in parts: without some of its features, and for the web.

use crate::shell::{cargo, run as run_command};
use std::path::Path;
use std::process::Command;

/// Sets of features that an app may take.
const FEATURES: [&str; 4] = ["", "cpu,parallel", "emit,files,gpu", "cpu,gpu,parallel"];

pub(crate) const WEB: &str = "wasm32-unknown-unknown";

/// Lints of the libraries with some of their features.
pub(crate) fn lint() -> Result<(), String> {
    for features in FEATURES {
        let packages = ["-p", "rewire-runtime", "-p", "rewire", "--no-default-features", "--features", features];
        run_command(cargo(&[&["clippy"], &packages[..], &["--", "-D", "warnings"]].concat()))?;
    }
    run_command(cargo(&["clippy", "-p", "rewire-cli", "--no-default-features", "--", "-D", "warnings"]))
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
