//! Checks the supply chain, and the compatibility of the libraries with the last release.

use crate::shell::{cargo, output_of, root, run};
use std::process::Command;

fn has(tool: &str) -> bool {
    cargo(&[tool, "--version"]).output().is_ok_and(|output| output.status.success())
}

/// Installs a cargo subcommand if it is missing.
fn install(tool: &str) -> Result<(), String> {
    if has(tool) { Ok(()) } else { run(cargo(&["install", "--locked", &format!("cargo-{tool}")])) }
}

/// Installs missing tools, and runs all checks, including those that [`check`] skips without the tools.
pub(crate) fn check_all() -> Result<(), String> {
    ["deny", "audit"].into_iter().try_for_each(install)?;
    check()?;
    versions()
}

/// Checks licences, sources and advisories of all dependencies. Checks whose tool or advisory list is not available are skipped.
pub(crate) fn check() -> Result<(), String> {
    if !has("deny") {
        eprintln!("\nxtask: the supply chain is not checked: `cargo xtask lint all` installs cargo-deny");
        return Ok(());
    }
    run(cargo(&["deny", "check", "licenses", "bans", "sources"]))?;
    let fetched = cargo(&["deny", "fetch", "db"]).output().is_ok_and(|output| output.status.success());
    if !fetched {
        eprintln!("\nxtask: advisories are not checked: their list cannot be fetched");
        return Ok(());
    }
    run(cargo(&["deny", "check", "advisories"]))?;
    if has("audit") { run(cargo(&["audit"])) } else { Ok(()) }
}

/// Compares the public interfaces of the published libraries with the last release, which is the newest tag `v*`, if there is one.
pub(crate) fn versions() -> Result<(), String> {
    let mut describe = Command::new("git");
    describe.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]).current_dir(root());
    let Ok(tag) = output_of(&mut describe) else {
        eprintln!(
            "\nxtask: versions are not checked: there is no release, a tag `v*`; `cargo xtask versions --baseline-rev REVISION` compares with any revision"
        );
        return Ok(());
    };
    versions_since(tag.trim())
}

/// Compares the public interfaces of the published libraries with those of a revision.
pub(crate) fn versions_since(revision: &str) -> Result<(), String> {
    install("semver-checks")?;
    run(cargo(&["semver-checks", "--workspace", "--baseline-rev", revision]))
}
