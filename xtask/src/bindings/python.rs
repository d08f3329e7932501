//! Tests the wheel in a virtual environment, and on clusters.

use crate::shell::{cargo, root, run, succeeds};
use crate::venv::{self, program};
use std::process::Command;

/// Checks that Python can run a test.
const READY: &str = "import sys, venv, ensurepip; assert sys.version_info >= (3, 11)";

pub(super) fn missing() -> Option<String> {
    let is_ready = succeeds("python3", &["-c", READY]);
    (!is_ready).then(|| "Python 3.11 or later with venv: `apt-get install python3-venv` installs it".to_owned())
}

pub(super) fn missing_of_clusters() -> Option<String> {
    let has_java = succeeds("java", &["-version"]);
    missing().or((!has_java).then(|| "`apt-get install default-jre-headless` installs what runs Spark".to_owned()))
}

pub(super) fn test() -> Result<(), String> {
    install(&["mypy", "numpy", "pandas", "polars", "pyarrow", "pytest"])?;
    run(python(&["-m", "mypy", "--strict", "--warn-unused-ignores", "--ignore-missing-imports", "typed.py"]))?;
    run(cargo(&["build", "-p", "rewire-cli", "--features", "full"]))?;
    let mut command = pytest(&[
        "test_ranker.py",
        "test_predictor.py",
        "test_models.py",
        "test_exported.py",
        "test_decoder.py",
        "test_readme.py",
        "test_training.py",
    ]);
    command.env("REWIRE_PROGRAM", root().join("target/debug/rewire"));
    run(command)
}

pub(super) fn test_clusters() -> Result<(), String> {
    install(&["aiohttp", "pyarrow", "pytest", "pyspark", "ray[data]"])?;
    let mut command = pytest(&["test_clusters.py"]);
    command.env("PYSPARK_PYTHON", program("python"));
    run(command)
}

/// Tests training with ranks started by torchrun and by Ray.
pub(super) fn test_ranks() -> Result<(), String> {
    install(&["aiohttp", "numpy", "pyarrow", "pytest", "ray[data]", "torch"])?;
    run(pytest(&["test_training.py"]))
}

/// Builds the wheel, and installs it together with packages from PyPI.
fn install(packages: &[&str]) -> Result<(), String> {
    venv::install(&[&["maturin>=1.10,<2"], packages].concat())?;
    let wheels = root().join("target/wheels");
    let mut command = Command::new(program("maturin"));
    command.args(["build", "--profile", "dev", "--out"]).arg(&wheels).current_dir(root().join("crates/python"));
    run(command)?;
    venv::install(&[
        "--force-reinstall",
        "--no-deps",
        "--no-index",
        "--find-links",
        &wheels.to_string_lossy(),
        "rewire-engine",
    ])
}

fn pytest(files: &[&str]) -> Command {
    python(&[&["-m", "pytest", "--quiet", "-p", "no:cacheprovider"], files].concat())
}

/// Runs Python with the wheel, in the folder of its tests.
fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new(program("python"));
    command.args(arguments).current_dir(root().join("crates/python/tests"));
    command
}
