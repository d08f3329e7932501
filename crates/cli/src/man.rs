//! Completions and manual pages.

use crate::args::Args;
use crate::error::CliError;
use crate::output::Output;
use clap_complete::{Shell, generate};
use std::path::Path;

/// The name of the program.
const PROGRAM: &str = "rewire";

/// Prints the completions of a shell.
pub fn completions(shell: Shell, output: &mut Output) -> Result<(), CliError> {
    let mut script = vec![];
    generate(shell, &mut Args::complete_command(), PROGRAM, &mut script);
    Ok(output.text(String::from_utf8_lossy(&script))?)
}

/// Writes a page for the program and one for each command.
pub fn pages(folder: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::Write { file: folder.display().to_string(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Args::complete_command(), folder).map_err(failed)
}
