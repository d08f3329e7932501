//! The programs of the README and what they print.

use crate::shell::{cargo, root, run, run_captured};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A code block of the README, by what follows its fence: the language, or `text scores` for what the programs print.
pub(super) fn block(fence: &str) -> Result<String, String> {
    let readme = std::fs::read_to_string(root().join("README.md")).map_err(|error| format!("README.md: {error}"))?;
    let block = readme.split_once(&format!("```{fence}\n")).and_then(|(_, rest)| rest.split_once("```"));
    block.map(|(block, _)| block.to_owned()).ok_or_else(|| format!("the README has no block `{fence}`"))
}

/// Writes a program of the README into a file.
pub(super) fn write_program(fence: &str, file: &Path) -> Result<PathBuf, String> {
    std::fs::write(file, block(fence)?).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file.to_owned())
}

/// Runs a program of the README in a folder without its model, which is an error, and with it.
pub(super) fn check(folder: &Path, mut command: impl FnMut() -> Command) -> Result<(), String> {
    let model = folder.join("model.rewire");
    if model.exists() {
        std::fs::remove_file(&model).map_err(|error| format!("{}: {error}", model.display()))?;
    }
    match run_captured(command()) {
        Err(text) if text.contains("model.rewire") => {}
        other => return Err(format!("without a model: expected an error that names model.rewire, got {other:?}")),
    }
    let mut package = cargo(&["run", "--quiet", "--package", "rewire-cli", "--", "package", "--out"]);
    package.arg(&model);
    run(package)?;
    let (text, scores) = (run_captured(command())?, block("text scores")?);
    if text.contains(&scores) { Ok(()) } else { Err(format!("expected\n{scores}got\n{text}")) }
}
