//! A virtual Python environment in the build folder.

use crate::shell::{root, run};
use std::path::PathBuf;
use std::process::Command;

/// The path of a program in the environment.
pub(crate) fn program(name: &str) -> PathBuf {
    root().join("target/python/bin").join(name)
}

/// Installs packages. The arguments may include options of pip.
pub(crate) fn install(packages: &[&str]) -> Result<(), String> {
    if !program("pip").exists() {
        let mut command = Command::new("python3");
        command.args(["-m", "venv"]).arg(root().join("target/python"));
        run(command)?;
    }
    let mut command = Command::new(program("pip"));
    command.args(["install", "--quiet"]).args(packages);
    run(command)
}
