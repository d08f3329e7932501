//! Checks that every published crate compiles from its own archive.

use super::{metadata, text};
use crate::shell::{cargo, output_of, root, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages the published crates, unpacks the archives into a workspace, and checks it. Crates use the unpacked sources of each other.
/// The build folder is shared, so that compiled dependencies are reused.
pub(crate) fn check() -> Result<(), String> {
    let workspace = metadata(&["--no-deps"])?;
    let published: Vec<&Value> =
        workspace["packages"].as_array().into_iter().flatten().filter(|package| package["publish"].is_null()).collect();
    let names: Vec<&str> = published.iter().map(|package| text(package, "name")).collect();
    let selection: Vec<&str> = names.iter().flat_map(|name| ["-p", *name]).collect();
    run(cargo(&[&["package", "--no-verify", "--allow-dirty", "--quiet"], &selection[..]].concat()))?;

    let folder = root().join("target/package/unpacked");
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    }
    std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    let mut members = vec![];
    for package in &published {
        let member = format!("{}-{}", text(package, "name"), text(package, "version"));
        let archive = root().join("target/package").join(format!("{member}.crate"));
        output_of(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&folder))?;
        members.push(member);
    }
    let manifest = folder.join("Cargo.toml");
    std::fs::write(&manifest, workspace_of(&names, &members)?).map_err(|error| failed(&manifest, error))?;
    let lock = folder.join("Cargo.lock");
    std::fs::copy(root().join("Cargo.lock"), &lock).map_err(|error| failed(&lock, error))?;

    let mut command = cargo(&["check", "--workspace", "--manifest-path"]);
    command.arg(&manifest).arg("--target-dir").arg(root().join("target"));
    run(command)?;
    eprintln!("\n{} crates compile from their archives", names.len());
    Ok(())
}

/// The manifest of a workspace of unpacked crates. It has the profiles of this workspace, so that compiled dependencies are reused.
fn workspace_of(names: &[&str], members: &[String]) -> Result<String, String> {
    let path: PathBuf = root().join("Cargo.toml");
    let own = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let profiles = own.find("[profile.dev]").map_or("", |begin| &own[begin..]);
    let of_member = |section: &&str| match section.strip_prefix("[profile.dev.package.") {
        Some(rest) if rest.starts_with("rewire") => rest.split_once(']').is_some_and(|(name, _)| names.contains(&name)),
        _ => true,
    };
    let profiles = profiles.split("\n\n").filter(of_member).collect::<Vec<_>>().join("\n\n");
    let patches: String =
        names.iter().zip(members).map(|(name, member)| format!("{name} = {{ path = \"{member}\" }}\n")).collect();
    Ok(format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[patch.crates-io]\n{patches}\n{profiles}"))
}
