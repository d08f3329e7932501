use crate::drivers::NewerLavapipe;
use crate::families;
use crate::features;
use crate::programs::{self, Job, Program};
use crate::shell::{cargo, root, run as run_command};
use crate::supply;
use crate::vulkan::{SoftwareDriver, with_driver};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The test program that runs on every driver. All others only run on the first driver.
const DEVICE_TESTS: &str = "devices";

/// Tests that use cooperative matrices, which the newest lavapipe supports: a test program, and filters of its tests.
const MATRIX_TESTS: (&str, [&str; 2]) = ("emission", ["matmul::", "attention::"]);

/// The slowest test programs, which are started first.
const LONG_TESTS: [&str; 6] = ["commands", "engine", "ranker", "growth", "training", "devices"];

/// Lints prose and code, which rebuilds all libraries, and checks the supply chain.
pub(crate) fn lint() -> Result<(), String> {
    run_command(reference("prose_of_all_files")?)?;
    run_command(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    features::web()?;
    supply::check()
}

/// The tests of texts and pages with this prefix. All test programs are built, since one alone would compile all libraries again, with
/// other features.
fn reference(prefix: &str) -> Result<Command, String> {
    let programs = programs::build()?;
    let program = programs.iter().find(|program| program.name == "reference").ok_or("there is no test `reference`")?;
    let mut command = program.command();
    command.arg(prefix);
    Ok(command)
}

/// Builds the documentation of all libraries and the book; warnings are errors. Takes a minute on two cores.
pub(crate) fn documentation() -> Result<(), String> {
    let mut docs = cargo(&["doc", "--workspace", "--no-deps"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    run_command(docs)?;
    book()
}

/// Builds the book into `target/book`. Other tests check its links and run its programs.
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
    if is_clean {
        lead_out(&root().join("target/book"))
    } else {
        Err(format!("the book has errors or warnings:\n{log}"))
    }
}

/// Corrects the links from built pages to files of the repository. mdBook keeps them relative to `docs`, with the extension of pages.
fn lead_out(book: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", book.display());
    for entry in std::fs::read_dir(book).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|ending| ending != "html") {
            continue;
        }
        let page = std::fs::read_to_string(&path).map_err(failed)?;
        let mut parts = page.split("href=\"../");
        let mut written = parts.next().unwrap_or("").to_owned();
        for part in parts {
            let (target, rest) = part.split_once('"').unwrap_or((part, ""));
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let file = file.strip_suffix(".html").map_or(file.to_owned(), |name| format!("{name}.md"));
            if !root().join(&file).exists() {
                return Err(format!("{}: there is no `{file}`", path.display()));
            }
            let anchor = anchor.map_or(String::new(), |anchor| format!("#{anchor}"));
            written += &format!("href=\"../../{file}{anchor}\"{rest}");
        }
        std::fs::write(&path, written).map_err(failed)?;
    }
    Ok(())
}

/// The modules of tests that take too long to run with all others.
const SLOW: &str = "slow::";

/// Runs the tests that [`run`] leaves out.
pub(crate) fn slow() -> Result<(), String> {
    let environments = environments();
    let Some(environment) = environments.first() else { return Ok(()) };
    let job = |program: &Program| Job {
        title: format!("{}, slow tests", program.title()),
        command: environment.apply(program.command_with(&[SLOW])),
    };
    programs::run(programs::build()?.iter().map(job).collect())
}

/// Checks formatting and runs all tests that are not slow.
pub(crate) fn run() -> Result<(), String> {
    run_command(cargo(&["fmt", "--all", "--check"]))?;
    let [first, rest @ ..] = &environments()[..] else { return Ok(()) };
    let mut programs = programs::build()?;
    programs
        .sort_by_key(|program| LONG_TESTS.iter().position(|name| *name == program.name).unwrap_or(LONG_TESTS.len()));
    // Packages of unit tests are excluded: they contain sources of other packages.
    let documentation = first.apply(cargo(&["test", "--workspace", "--doc", "--exclude", "rewire-*-units"]));
    let mut jobs = vec![Job { title: "examples in the documentation".to_owned(), command: documentation }];
    for environment in [first].into_iter().chain(rest) {
        let is_wanted = |name: &str| environment.name == first.name || name == DEVICE_TESTS;
        jobs.extend(programs.iter().filter(|program| is_wanted(&program.name)).map(|program| Job {
            title: format!("{} on {}", program.title(), environment.name),
            command: environment.apply(program.command_with(&["--skip", SLOW])),
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

/// Writes the generated pages, which tests compare with the sources.
pub(crate) fn write_reference() -> Result<(), String> {
    let mut command = reference("the_page_of")?;
    command.env("REWIRE_WRITE_REFERENCE", "1");
    run_command(command)
}

/// A test environment. `driver` is the only Vulkan driver that tests find; `None` for the system's drivers.
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
        // By default, lavapipe takes longer to compile a shader than a test takes to run it.
        command.env("GALLIVM_PERF", "nopt");
        with_driver(command, self.driver.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_files() {
        let folder = root().join("target/book-links");
        std::fs::create_dir_all(&folder).unwrap();
        let page = folder.join("page.html");
        let links = |text: &str| {
            std::fs::write(&page, text).unwrap();
            lead_out(&folder).map(|()| std::fs::read_to_string(&page).unwrap())
        };
        let text =
            "<a href=\"../README.html#platforms\">a</a><a href=\"../Cargo.toml\">b</a><a href=\"other.html\">c</a>";
        let expected =
            "<a href=\"../../README.md#platforms\">a</a><a href=\"../../Cargo.toml\">b</a><a href=\"other.html\">c</a>";
        assert_eq!(links(text).unwrap(), expected);
        assert!(links("<a href=\"../none.html\">").unwrap_err().contains("`none.md`"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
