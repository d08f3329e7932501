//! Checks the packages for crates.io: each published crate has its licences and all files that its sources include.

use crate::shell::{cargo, output_of};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Files that every package must contain.
const EVERYWHERE: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Manifest keys that crates.io displays.
const SHOWN: [&str; 5] = ["description", "license", "readme", "keywords", "categories"];

/// Checks the packages of all crates that are published.
fn check() -> Result<(), String> {
    let metadata: Value =
        serde_json::from_str(&output_of(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?)
            .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let faults: Vec<String> =
        packages.filter(|package| package["publish"].is_null()).map(faults).collect::<Result<Vec<_>, _>>()?.concat();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// All problems of a package.
fn faults(package: &Value) -> Result<Vec<String>, String> {
    let name = package["name"].as_str().unwrap_or_default();
    let is_empty = |key: &&&str| match &package[**key] {
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => true,
    };
    let unset = SHOWN.iter().filter(is_empty).map(|key| format!("{name}: its manifest has no `{key}`"));
    let listed = output_of(&mut cargo(&["package", "--package", name, "--list", "--allow-dirty", "--no-verify"]))?;
    let listed: BTreeSet<PathBuf> = listed.lines().map(PathBuf::from).collect();
    let is_documented = package["metadata"]["docs"]["rs"].is_object();
    let undocumented = (!is_documented).then(|| format!("{name}: its manifest has no `package.metadata.docs.rs`"));
    let absent = EVERYWHERE.iter().filter(|file| !listed.contains(Path::new(file)));
    let absent = absent.map(|file| format!("{name}: its package has no {file}"));
    let mut faults: Vec<String> = unset.chain(undocumented).chain(absent).collect();
    let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent().unwrap_or(Path::new(""));
    for file in listed.iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
        let text =
            std::fs::read_to_string(folder.join(file)).map_err(|error| format!("{}: {error}", file.display()))?;
        let outside = included(&text, file).into_iter().filter(|path| !listed.contains(path));
        faults.extend(
            outside.map(|path| format!("{name}: {} includes {}, outside its package", file.display(), path.display())),
        );
    }
    Ok(faults)
}

/// The files that a source includes, as paths relative to its package. Paths that contain macros are ignored.
fn included(text: &str, file: &Path) -> Vec<PathBuf> {
    let from = file.parent().unwrap_or(Path::new(""));
    let calls =
        ["include!(\"", "include_str!(\"", "include_bytes!(\""].into_iter().flat_map(|call| text.split(call).skip(1));
    calls.filter_map(|rest| rest.split_once("\")")).map(|(path, _)| normal(&from.join(path))).collect()
}

/// Resolves `..` in a path as far as possible.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        let is_inside = whole.components().next_back().is_some_and(|last| matches!(last, Component::Normal(_)));
        match part {
            Component::ParentDir if is_inside => drop(whole.pop()),
            other => whole.push(other),
        }
        whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_found_from_the_package() {
        let text =
            r#"const A: &str = include_str!("../../shaders/a.wgsl"); const B: &[u8] = include_bytes!("../../../b");"#;
        let found = included(text, Path::new("src/emit/template.rs"));
        assert_eq!(found, [Path::new("shaders/a.wgsl"), Path::new("../b")]);
    }

    #[test]
    fn published_crates_are_whole() {
        check().unwrap();
    }
}
