//! The programs of the README and other pages, and their output.

use crate::shell::{rewire, root, run, run_captured};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A code block of a page. `fence` is the text after its opening fence: the language, or `text scores` for expected output.
pub(crate) fn block(page: &str, fence: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(root().join(page)).map_err(|error| format!("{page}: {error}"))?;
    let block = text.split_once(&format!("```{fence}\n")).and_then(|(_, rest)| rest.split_once("```"));
    block.map(|(block, _)| block.to_owned()).ok_or_else(|| format!("{page} has no block `{fence}`"))
}

/// Writes a program of a page to a file.
pub(crate) fn write_program(page: &str, fence: &str, file: &Path) -> Result<PathBuf, String> {
    std::fs::write(file, block(page, fence)?).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file.to_owned())
}

/// Runs a program twice: without its model, which must be an error, and with it. Compares the output with the README.
pub(crate) fn check(folder: &Path, mut command: impl FnMut() -> Command) -> Result<(), String> {
    let model = folder.join("model.rewire");
    if model.exists() {
        std::fs::remove_file(&model).map_err(|error| format!("{}: {error}", model.display()))?;
    }
    match run_captured(command()) {
        Err(text) if text.contains("model.rewire") => {}
        other => return Err(format!("without a model: expected an error that names model.rewire, got {other:?}")),
    }
    let mut package = rewire(&["package", "--out"]);
    package.arg(&model);
    run(package)?;
    let (text, scores) = (run_captured(command())?, block("README.md", "text scores")?);
    if text.contains(&scores) { Ok(()) } else { Err(format!("expected\n{scores}got\n{text}")) }
}
