use crate::drivers::NewerLavapipe;
use crate::families;
use crate::features;
use crate::programs::{self, Job};
use crate::shell::{cargo, root, run as run_command};
use crate::supply;
use crate::vulkan::{SoftwareDriver, with_driver};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

/// The test program that runs on every driver; the others only run on the first one.
const DEVICE_TESTS: &str = "devices";

/// Tests that use cooperative matrices, which the newest lavapipe supports: a program, and the names of its tests.
const MATRIX_TESTS: (&str, [&str; 2]) = ("emission", ["matmul::", "attention::"]);

/// The slowest test programs, which start first.
const LONG_TESTS: [&str; 6] = ["commands", "engine", "ranker", "growth", "training", "devices"];

/// Lints, which rebuild all libraries, and the supply chain.
pub(crate) fn lint() -> Result<(), String> {
    run_command(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    features::lint()?;
    supply::check()
}

/// The documentation of all libraries and the book without warnings, a minute on two cores.
pub(crate) fn documentation() -> Result<(), String> {
    let mut docs = cargo(&["doc", "--workspace", "--no-deps"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    run_command(docs)?;
    book()
}

/// Builds the book into `target/book`. Tests check its links and run its programs.
fn book() -> Result<(), String> {
    let mut command = Command::new("mdbook");
    command.args(["build", "docs"]).current_dir(root());
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("\nxtask: the book is not built: `cargo install --locked mdbook` installs mdBook");
            return Ok(());
        }
        other => other.map_err(|error| format!("mdbook: {error}"))?,
    };
    let log = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let is_clean = output.status.success() && !log.contains("WARN") && !log.contains("ERROR");
    if is_clean { Ok(()) } else { Err(format!("the book has errors or warnings:\n{log}")) }
}

/// Formatting and all tests.
pub(crate) fn run() -> Result<(), String> {
    run_command(cargo(&["fmt", "--all", "--check"]))?;
    let [first, rest @ ..] = &environments()[..] else { return Ok(()) };
    let mut programs = programs::build()?;
    programs
        .sort_by_key(|program| LONG_TESTS.iter().position(|name| *name == program.name).unwrap_or(LONG_TESTS.len()));
    // The packages of unit tests share the sources of other packages.
    let documentation = first.apply(cargo(&["test", "--workspace", "--doc", "--exclude", "rewire-*-units"]));
    let mut jobs = vec![Job { title: "examples in the documentation".to_owned(), command: documentation }];
    for environment in [first].into_iter().chain(rest) {
        let is_wanted = |name: &str| environment.name == first.name || name == DEVICE_TESTS;
        jobs.extend(programs.iter().filter(|program| is_wanted(&program.name)).map(|program| Job {
            title: format!("{} on {}", program.title(), environment.name),
            command: environment.apply(program.command()),
        }));
    }
    if let Some(lavapipe) = NewerLavapipe::found()? {
        let (name, tests) = MATRIX_TESTS;
        jobs.extend(programs.iter().filter(|program| program.name == name).map(|program| Job {
            title: format!("{} of cooperative matrices on the newest lavapipe", program.title()),
            command: lavapipe.run(program.command().args(tests)),
        }));
        jobs.extend(families::tests(&lavapipe)?);
    }
    programs::run(jobs)?;
    let names: Vec<&str> = [first].into_iter().chain(rest).map(|environment| environment.name).collect();
    eprintln!("\nall checks and tests pass: CPU, {}", names.join(", "));
    Ok(())
}

/// Writes the generated pages, which tests compare with the source.
pub(crate) fn write_reference() -> Result<(), String> {
    let mut command = cargo(&["test", "--quiet", "-p", "rewire-tests", "--test", "reference", "the_page_of"]);
    command.env("REWIRE_WRITE_REFERENCE", "1");
    run_command(command)
}

/// The Vulkan driver that tests see; `None` for that of the system.
struct Environment {
    name: &'static str,
    driver: Option<PathBuf>,
}

fn environments() -> Vec<Environment> {
    let chosen = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].iter().any(|name| std::env::var_os(name).is_some());
    let drivers = [SoftwareDriver::Lavapipe, SoftwareDriver::SwiftShader];
    let found: Vec<Environment> = drivers
        .into_iter()
        .filter(|_| !chosen && cfg!(target_os = "linux"))
        .filter_map(|driver| Some(Environment { name: driver.name(), driver: Some(driver.manifest()?) }))
        .collect();
    if found.is_empty() { vec![Environment { name: "this machine's adapters", driver: None }] } else { found }
}

impl Environment {
    fn apply(&self, mut command: Command) -> Command {
        // lavapipe takes longer to compile a shader than a test takes to run it.
        command.env("GALLIVM_PERF", "nopt");
        with_driver(command, self.driver.as_deref())
    }
}
