//! Builds the files of a release into a folder. Builds are reproducible: the same commit results in the same bytes.

use super::check::check;
use super::parts::{PARTS, Part};
use super::{VERSION, licences, materials, metadata};
use crate::features::WEB;
use crate::shell::{output_of, root, run as run_command};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Files that every archive contains.
const BESIDE: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The command for a release folder.
#[derive(Debug)]
pub(crate) enum Options {
    /// Build parts into the folder; all parts by default.
    Build { folder: PathBuf, parts: Vec<&'static Part> },
    /// Check the contents of the folder.
    Check { folder: PathBuf },
}

impl Options {
    /// Parses `FOLDER [PART ...]` and `--check FOLDER`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let known = || PARTS.map(|part| part.name).join(", ");
        let find = |name: &&str| {
            let part = PARTS.iter().find(|part| part.name == *name);
            part.ok_or_else(|| format!("there is no part `{name}`: expected {}", known()))
        };
        match arguments {
            ["--check", folder] => Ok(Self::Check { folder: folder.into() }),
            [folder] if !folder.starts_with('-') => {
                Ok(Self::Build { folder: folder.into(), parts: PARTS.iter().collect() })
            }
            [folder, names @ ..] if !folder.starts_with('-') => {
                let parts = names.iter().map(find).collect::<Result<_, _>>()?;
                Ok(Self::Build { folder: folder.into(), parts })
            }
            _ => Err(format!("dist takes a folder, and parts: {}; or `--check` and a folder", known())),
        }
    }
}

/// The folders and settings of a release.
pub(super) struct Dist {
    pub folder: PathBuf,
    /// Folder in which the files of archives are collected.
    staging: PathBuf,
    pub target: String,
    /// Time of the commit in seconds since 1970.
    pub epoch: String,
}

/// Builds or checks a release.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let (Options::Build { folder, .. } | Options::Check { folder }) = options;
    let folder = created(folder)?;
    let dist = Dist { staging: created(&root().join("target/dist"))?, folder, target: host()?, epoch: epoch()? };
    match options {
        Options::Build { parts, .. } => build(&dist, parts),
        Options::Check { .. } => check(&dist),
    }
}

/// Builds the parts, then writes their licences, bill of materials and checksums.
fn build(dist: &Dist, parts: &[&Part]) -> Result<(), String> {
    for part in parts {
        let begun = Instant::now();
        (part.build)(dist)?;
        eprintln!("\n{}: {:.0} s", part.name, begun.elapsed().as_secs_f64());
    }
    let (own, web) = (metadata(&["--filter-platform", &dist.target])?, metadata(&["--filter-platform", WEB])?);
    let packages = materials::merged(&[
        materials::contained(&own, &["rewire-cli", "rewire-capi", "rewire-python"]),
        materials::contained(&web, &["rewire-web"]),
    ]);
    write(&dist.folder.join("THIRD-PARTY-LICENCES.txt"), &licences::page(&packages)?)?;
    let bill =
        serde_json::to_string_pretty(&materials::bill(&packages, VERSION)?).map_err(|error| error.to_string())?;
    write(&dist.folder.join("rewire.cdx.json"), &bill)?;
    checksums(&dist.folder)
}

pub(super) fn created(folder: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::canonicalize(folder).map_err(failed)
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}

pub(super) fn host() -> Result<String, String> {
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

impl Dist {
    /// Creates an empty folder for the files of an archive.
    pub(super) fn stage(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.staging.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        created(&folder)
    }

    /// Writes a staged folder as an archive.
    pub(super) fn archive(&self, staged: &Path, file: &str) -> Result<(), String> {
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
        let names = |arguments: &[&str]| match Options::parse(arguments) {
            Ok(Options::Build { parts, .. }) => parts.iter().map(|part| part.name).collect(),
            other => vec![if let Ok(Options::Check { .. }) = other { "check" } else { "wrong" }],
        };
        assert_eq!(names(&["out", "c"]), ["c"]);
        assert_eq!(names(&["out"]).len(), PARTS.len());
        assert_eq!(names(&["--check", "out"]), ["check"]);
        for wrong in [&["out", "deb"][..], &[], &["--check"], &["--verify", "out"]] {
            assert_eq!(names(wrong), ["wrong"], "{wrong:?}");
        }
        assert!(Options::parse(&["out", "deb"]).unwrap_err().contains("there is no part `deb`: expected program"));
    }
}
