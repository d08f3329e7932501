//! Builds the files of a release into a folder: the same commit gives the same bytes.

use super::{licences, materials, metadata};
use crate::shell::{cargo, output_of, root, run as run_command};
use crate::small::remapped;
use crate::{capi, venv, web};
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Files that every archive has.
const BESIDE: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// A file of a release.
#[derive(Debug)]
struct Part {
    name: &'static str,
    build: fn(&Dist) -> Result<(), String>,
}

const PARTS: [Part; 4] = [
    Part { name: "program", build: program },
    Part { name: "wheel", build: wheel },
    Part { name: "c", build: library },
    Part { name: "npm", build: package },
];

/// The folder of a release and its parts; all by default.
#[derive(Debug)]
pub(crate) struct Options {
    folder: PathBuf,
    parts: Vec<&'static Part>,
}

impl Options {
    /// Parses `FOLDER [PART ...]`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let known = || PARTS.map(|part| part.name).join(", ");
        let [folder, names @ ..] = arguments else {
            return Err(format!("dist takes a folder, and parts: {}", known()));
        };
        let find = |name: &&str| {
            let part = PARTS.iter().find(|part| part.name == *name);
            part.ok_or_else(|| format!("there is no part `{name}`: expected {}", known()))
        };
        let parts =
            if names.is_empty() { PARTS.iter().collect() } else { names.iter().map(find).collect::<Result<_, _>>()? };
        Ok(Self { folder: PathBuf::from(folder), parts })
    }
}

/// A release that is built.
struct Dist {
    folder: PathBuf,
    /// Where the files of archives are collected.
    staging: PathBuf,
    target: String,
    /// Seconds since 1970: the time of the commit.
    epoch: String,
}

/// Builds the parts, the licences and the bill of materials of what they contain, and their checksums.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let folder = created(&options.folder)?;
    let dist = Dist { staging: created(&root().join("target/dist"))?, folder, target: host()?, epoch: epoch()? };
    for part in &options.parts {
        (part.build)(&dist)?;
    }
    let metadata = metadata(&["--filter-platform", &dist.target])?;
    let packages = materials::contained(&metadata, "rewire-cli");
    write(&dist.folder.join("THIRD-PARTY-LICENCES.txt"), &licences::page(&packages)?)?;
    let bill =
        serde_json::to_string_pretty(&materials::bill(&packages, VERSION)?).map_err(|error| error.to_string())?;
    write(&dist.folder.join("rewire.cdx.json"), &bill)?;
    checksums(&dist.folder)
}

fn created(folder: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::canonicalize(folder).map_err(failed)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}

fn host() -> Result<String, String> {
    let version = output_of(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not name its host".to_owned())
}

/// `SOURCE_DATE_EPOCH`, or the time of the commit.
fn epoch() -> Result<String, String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let time = output_of(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))?;
    Ok(time.trim().to_owned())
}

/// A build whose bytes do not depend on the folders and the time.
fn reproducible(mut command: Command, dist: &Dist) -> Command {
    let flags = remapped().into_iter().chain([format!("--remap-path-prefix={}=", root().display())]);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\u{1f}"));
    command.env("SOURCE_DATE_EPOCH", &dist.epoch).env("CARGO_INCREMENTAL", "0");
    command
}

impl Dist {
    /// An empty folder for the files of an archive.
    fn stage(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.staging.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        created(&folder)
    }

    /// Writes a staged folder as an archive.
    fn archive(&self, staged: &Path, file: &str) -> Result<(), String> {
        for name in BESIDE {
            copy(&root().join(name), &staged.join(name))?;
        }
        let name = staged.file_name().unwrap_or_default();
        let tar = staged.with_extension("tar");
        let mut command = Command::new("tar");
        command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX,u+rw"]);
        command.arg(format!("--mtime=@{}", self.epoch)).arg("-C").arg(&self.staging).arg("-cf").arg(&tar).arg(name);
        run_command(command)?;
        let mut command = Command::new("gzip");
        command.args(["-9", "-n", "-f"]).arg(&tar);
        run_command(command)?;
        copy(&staged.with_extension("tar.gz"), &self.folder.join(file))
    }
}

/// The program for this system with its server, completions and manual pages.
fn program(dist: &Dist) -> Result<(), String> {
    // An option of the profile would compile all libraries again for the wheel.
    let build =
        ["rustc", "--release", "-p", "rewire-cli", "--bin", "rewire", "--features", "serve", "--", "-Cstrip=symbols"];
    run_command(reproducible(cargo(&build), dist))?;
    let staged = dist.stage("rewire")?;
    let program = root().join("target/release/rewire");
    copy(&program, &staged.join("rewire"))?;
    let completions = created(&staged.join("completions"))?;
    for (shell, file) in [("bash", "rewire.bash"), ("fish", "rewire.fish"), ("zsh", "_rewire")] {
        write(&completions.join(file), &output_of(Command::new(&program).args(["completions", shell]))?)?;
    }
    output_of(Command::new(&program).args(["man", "--out"]).arg(staged.join("man")))?;
    dist.archive(&staged, &format!("rewire-{VERSION}-{}.tar.gz", dist.target))
}

/// The wheel, for every Python from 3.11 on.
fn wheel(dist: &Dist) -> Result<(), String> {
    venv::install(&["maturin>=1.10,<2"])?;
    let mut command = Command::new(venv::program("maturin"));
    // The features of the program's libraries: with others, they would be compiled again.
    command.args(["build", "--release", "--locked", "--features", "rewire-cli/serve", "--out"]).arg(&dist.folder);
    command.current_dir(root().join("crates/python"));
    run_command(reproducible(command, dist))
}

/// The C library with its header.
fn library(dist: &Dist) -> Result<(), String> {
    let staged = dist.stage("rewire-c")?;
    capi::run(&staged, false)?;
    dist.archive(&staged, &format!("rewire-c-{VERSION}-{}.tar.gz", dist.target))
}

/// The package for npm: the files that its `package.json` lists.
fn package(dist: &Dist) -> Result<(), String> {
    let page = web::build()?;
    let staged = dist.stage("package")?;
    for entry in std::fs::read_dir(&page).map_err(|error| format!("{}: {error}", page.display()))? {
        let path = entry.map_err(|error| format!("{}: {error}", page.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if web::is_packaged(&name)? {
            copy(&path, &staged.join(&name))?;
        }
    }
    dist.archive(&staged, &format!("rewire-web-{VERSION}.tgz"))
}

/// Writes `SHA256SUMS` for all other files of a folder.
fn checksums(folder: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.retain(|name| name != "SHA256SUMS" && folder.join(name).is_file());
    names.sort();
    let sums = output_of(Command::new("sha256sum").args(&names).current_dir(folder))?;
    write(&folder.join("SHA256SUMS"), &sums)?;
    eprintln!("\n{}:\n{sums}", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn archives_of_equal_files_have_equal_bytes() {
        let folder = created(&root().join("target/dist/tests")).unwrap();
        let archive = |file: &str| {
            let dist = Dist {
                folder: folder.clone(),
                staging: folder.clone(),
                target: "here".to_owned(),
                epoch: "1700000000".to_owned(),
            };
            let staged = dist.stage("staged").unwrap();
            for name in if file == "a.tar.gz" { ["b", "a"] } else { ["a", "b"] } {
                write(&staged.join(name), name).unwrap();
            }
            dist.archive(&staged, file).unwrap();
            std::fs::read(folder.join(file)).unwrap()
        };
        let [one, other] = ["a.tar.gz", "b.tar.gz"].map(archive);
        assert!(one == other && !one.is_empty());
        checksums(&folder).unwrap();
        let sums = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
        assert!(sums.contains("  a.tar.gz\n") && !sums.contains("SHA256SUMS"), "{sums}");
    }

    #[test]
    fn parts_are_found_by_name() {
        let names = |arguments: &[&str]| Ok(Options::parse(arguments)?.parts.iter().map(|part| part.name).collect());
        assert_eq!(names(&["out", "c"]), Ok::<Vec<&str>, String>(vec!["c"]));
        assert_eq!(names(&["out"]).map(|all| all.len()), Ok(PARTS.len()));
        assert!(names(&["out", "deb"]).unwrap_err().contains("there is no part `deb`: expected program"));
        assert!(names(&[]).unwrap_err().contains("dist takes a folder"));
    }
}
