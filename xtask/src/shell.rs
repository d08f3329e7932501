use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root folder of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Runs the same cargo as this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs the `rewire` program. It is a debug build, because a release build would take longer than it saves.
pub(crate) fn rewire(arguments: &[&str]) -> Command {
    cargo(&[&["run", "--quiet", "--package", "rewire-cli", "--features", "full", "--"], arguments].concat())
}

/// Prints a command and runs it. A failure is an error.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    let line = line(&command);
    eprintln!("\n$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` failed: {status}")),
        Err(error) => Err(format!("`{line}` does not start: {error}")),
    }
}

/// Like [`run`], but returns the output of the command.
pub(crate) fn run_captured(mut command: Command) -> Result<String, String> {
    let line = line(&command);
    eprintln!("\n$ {line}");
    let output = command.output().map_err(|error| format!("`{line}` does not start: {error}"))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{text}\n`{line}` failed: {}", output.status)),
    }
}

/// Runs a command without printing it, and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let line = line(command);
    let output = command.output().map_err(|error| format!("`{line}` does not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// True if the command succeeds. Its output is dropped.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let variables = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
    });
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    variables.chain([program]).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Arguments that run integration tests of the workspace by name. Packages are selected as for all tests, because other selections
/// would rebuild the libraries with other features.
pub(crate) fn tests<'a>(names: &[&'a str]) -> Vec<&'a str> {
    ["test", "--workspace"].into_iter().chain(names.iter().flat_map(|name| ["--test", *name])).collect()
}
