//! Checks a built release: its checksums, its lists of libraries, and for every language whose tools are installed, that the program of
//! the README prints the README's scores.

use super::VERSION;
use super::dist::{Dist, copy, created, write};
use super::parts::{BUILD, library_archive, package_archive, program_archive, reproducible};
use crate::bindings::readme;
use crate::shell::{cargo, output_of, root, run, run_captured, succeeds};
use crate::web::Server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// A language of the README.
struct Language {
    name: &'static str,
    /// Programs that the check requires.
    tools: &'static [&'static str],
    /// Runs the program of the README in a folder that contains `model.rewire`, and returns its output.
    print: fn(&Dist, &Path) -> Result<String, String>,
}

const LANGUAGES: [Language; 5] = [
    Language { name: "rust", tools: &[], print: rust },
    Language { name: "python", tools: &["python3"], print: python },
    Language { name: "c", tools: &["cc"], print: |dist, folder| c(dist, folder, &["cc", "-std=c11"]) },
    Language { name: "c++", tools: &["c++"], print: |dist, folder| c(dist, folder, &["c++", "-std=c++17", "-xc++"]) },
    Language { name: "javascript", tools: &["node", "chromium"], print: javascript },
];

/// Checks the contents of a release folder.
pub(super) fn check(dist: &Dist) -> Result<(), String> {
    let mut command = Command::new("sha256sum");
    command.args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(&dist.folder);
    run(command)?;
    libraries(&dist.folder)?;
    let folder = dist.stage("check")?;
    let program = unpacked(dist, &program_archive(dist), &folder)?.join("rewire");
    let model = folder.join("model.rewire");
    output_of(Command::new(&program).args(["package", "--out"]).arg(&model))?;
    quick_start(&program)?;
    let outcomes = LANGUAGES.iter().map(|language| (language.name, scores_of(language, dist, &folder)));
    let failed: Vec<String> =
        outcomes.filter_map(|(name, outcome)| Some(format!("{name}: {}", outcome.err()?))).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Compares the output of a language's program with the scores in the README. A language whose tools are missing is skipped.
fn scores_of(language: &Language, dist: &Dist, folder: &Path) -> Result<(), String> {
    if let Some(tool) = language.tools.iter().find(|tool| !succeeds(tool, &["--version"])) {
        eprintln!("\nxtask: the program in {} is not checked: there is no {tool}", language.name);
        return Ok(());
    }
    let own = created(&folder.join(language.name))?;
    copy(&folder.join("model.rewire"), &own.join("model.rewire"))?;
    let (printed, scores) = ((language.print)(dist, &own)?, readme::block("README.md", "text scores")?);
    if !printed.ends_with(&scores) {
        return Err(format!("expected\n{scores}got\n{printed}"));
    }
    eprintln!("\n{}: prints the scores of the README", language.name);
    Ok(())
}

/// Checks that the bill of materials and the licences name the same libraries, each with a licence.
fn libraries(folder: &Path) -> Result<(), String> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let (bill, licences) = (read("rewire.cdx.json")?, read("THIRD-PARTY-LICENCES.txt")?);
    let bill: Value = serde_json::from_str(&bill).map_err(|error| format!("rewire.cdx.json: {error}"))?;
    let components = bill["components"].as_array().filter(|all| !all.is_empty()).ok_or("rewire.cdx.json is empty")?;
    for component in components {
        let name = format!("{} {}", super::text(component, "name"), super::text(component, "version"));
        let licence = super::text(&component["licenses"][0], "expression");
        if licence.is_empty() || !licences.contains(&format!("\n{name}: {licence}\n")) {
            return Err(format!("{name}: THIRD-PARTY-LICENCES.txt has no licence `{licence}` of it"));
        }
    }
    eprintln!("{} libraries have licences", components.len());
    Ok(())
}

/// Unpacks an archive, and returns its top-level folder.
fn unpacked(dist: &Dist, archive: &str, folder: &Path) -> Result<PathBuf, String> {
    let archive = dist.folder.join(archive);
    let listed = output_of(Command::new("tar").arg("-tzf").arg(&archive))?;
    let name = listed.split('/').next().unwrap_or_default();
    output_of(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder))?;
    Ok(folder.join(name))
}

/// Checks that the program prints the same AUC values as the README.
fn quick_start(program: &Path) -> Result<(), String> {
    let printed = run_captured({
        let mut command = Command::new(program);
        command.args(["rank", "--kernel", "cpu"]);
        command
    })?;
    let page = readme::block("README.md", "text")?;
    match page.lines().filter(|line| line.starts_with("AUC")).find(|line| !printed.contains(line)) {
        Some(line) => Err(format!("`rewire rank` did not print `{line}`:\n{printed}")),
        None => {
            eprintln!("the program ranks as in the README");
            Ok(())
        }
    }
}

/// Runs the README's Rust program, built from the crates like the release.
fn rust(dist: &Dist, folder: &Path) -> Result<String, String> {
    run(reproducible(cargo(&[&BUILD[..], &["-p", "rewire-examples", "--example", "readme"]].concat()), dist))?;
    let mut command = Command::new(root().join("target/release/examples/readme"));
    command.current_dir(folder);
    run_captured(command)
}

/// Runs the README's Python program with the wheel in a new environment.
fn python(dist: &Dist, folder: &Path) -> Result<String, String> {
    let environment = folder.join("environment");
    output_of(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let mut install = Command::new(environment.join("bin/pip"));
    install.args(["install", "--quiet", "--no-deps", "--no-index", "--find-links"]).arg(&dist.folder);
    install.arg(format!("rewire-engine=={VERSION}"));
    run(install)?;
    let program = readme::write_program("README.md", "python", &folder.join("program.py"))?;
    let mut command = Command::new(environment.join("bin/python"));
    command.arg(program).current_dir(folder);
    run_captured(command)
}

/// Runs the C program with the header and the shared library. `compiler` is the command to compile it.
fn c(dist: &Dist, folder: &Path, compiler: &[&str]) -> Result<String, String> {
    let library = unpacked(dist, &library_archive(dist), folder)?;
    let source = readme::write_program("docs/c.md", "c", &folder.join("program.c"))?;
    let mut compile = Command::new(compiler[0]);
    compile.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(library.join("include")).arg(source);
    compile.arg("-o").arg(folder.join("program")).arg("-L").arg(library.join("lib")).arg("-lrewire_c");
    run_captured(compile)?;
    let mut command = Command::new(folder.join("program"));
    command.env("LD_LIBRARY_PATH", library.join("lib")).current_dir(folder);
    run_captured(command)
}

/// Runs the README's JavaScript program with the npm package in headless Chromium.
fn javascript(dist: &Dist, folder: &Path) -> Result<String, String> {
    let page = unpacked(dist, &package_archive(), folder)?;
    copy(&folder.join("model.rewire"), &page.join("model.rewire"))?;
    write(&page.join("index.html"), "<!doctype html><title>README</title>")?;
    readme::write_program("README.md", "js", &page.join("readme.js"))?;
    let server = Server::open(page, 0)?;
    let address = format!("http://localhost:{}/", server.port());
    thread::spawn(move || server.run());
    let mut command = Command::new("node");
    command.args(["--no-warnings", "xtask/src/release/readme.mjs", &address]).current_dir(root());
    run_captured(command)
}
