//! Runs test programs side by side, because most of them end with a test that uses only one core.

use crate::shell::{cargo, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// A test program of the workspace.
pub(crate) struct Program {
    pub name: String,
    path: PathBuf,
    /// The folder of its package.
    folder: PathBuf,
}

/// A command with its title.
pub(crate) struct Job {
    pub title: String,
    pub command: Command,
}

impl Program {
    /// The folder and name of the program.
    pub(crate) fn title(&self) -> String {
        let folder = self.folder.strip_prefix(root()).unwrap_or(&self.folder);
        format!("{}: {}", folder.display(), self.name)
    }

    /// [`Program::command`] with arguments.
    pub(crate) fn command_with(&self, arguments: &[&str]) -> Command {
        let mut command = self.command();
        command.args(arguments);
        command
    }

    /// A command that runs the program as cargo does.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds the tests of libraries, programs and `tests` folders. `--lib` would also build libraries whose manifest excludes tests.
pub(crate) fn build() -> Result<Vec<Program>, String> {
    let arguments = ["test", "--workspace", "--tests", "--no-run"];
    eprintln!("\n$ cargo {}", arguments.join(" "));
    let mut command = cargo(&arguments);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("the tests do not build: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect())
}

/// The test program in a message of cargo; `None` for other messages.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    message.pointer("/profile/test")?.as_bool().filter(|is_test| *is_test)?;
    let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?.to_owned();
    let path = PathBuf::from(message.get("executable")?.as_str()?);
    Some(Program { name: message.pointer("/target/name")?.as_str()?.to_owned(), path, folder })
}

/// Runs jobs side by side and prints the output of each when it ends. Of all jobs together, as many tests run at a time as there are
/// cores: tests have several threads, and twice as many tests at a time took 1.6 times as long on two cores.
pub(crate) fn run(jobs: Vec<Job>) -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let at_once = cores.div_ceil(4).max(2).min(cores);
    let tests = cores / at_once;
    let (jobs, failed) = (Mutex::new(jobs.into_iter()), Mutex::new(vec![]));
    let work = || {
        while let Some(job) = jobs.lock().ok().and_then(|mut jobs| jobs.next()) {
            let title = job.title.clone();
            let passes = show(job, tests);
            if let (false, Ok(mut failed)) = (passes, failed.lock()) {
                failed.push(title);
            }
        }
    };
    std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(work))));
    match failed.into_inner().unwrap_or_default() {
        failed if failed.is_empty() => Ok(()),
        failed => Err(format!("tests fail: {}", failed.join(", "))),
    }
}

/// Runs a program with so many tests at a time and prints its output. Returns true if it succeeds.
fn show(Job { title, mut command }: Job, tests: usize) -> bool {
    let begin = Instant::now();
    let output = match command.env("RUST_TEST_THREADS", tests.to_string()).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("\n{title}: {error}");
            return false;
        }
    };
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    eprintln!("\n{title}, {:.0} s: {}\n{}", begin.elapsed().as_secs_f64(), output.status, text.trim());
    output.status.success()
}
