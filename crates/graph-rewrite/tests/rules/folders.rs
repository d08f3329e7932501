//! The modules of the crate depend on each other without cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The modules (folders or files of `src`) that the code of each module names.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn source() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

#[test]
fn no_folder_depends_on_one_that_depends_on_it() {
    let mut uses = Uses::new();
    for entry in std::fs::read_dir(source()).unwrap() {
        let path = entry.unwrap().path();
        let part = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if part != "lib" {
            let own = uses.entry(part.clone()).or_default();
            read(&path, own);
            own.remove(&part);
        }
    }
    let parts: BTreeSet<String> = uses.keys().cloned().collect();
    assert!(parts.len() > 8 && uses["passes"].contains("rules"), "{uses:?}");
    uses.values_mut().for_each(|used| used.retain(|part| parts.contains(part)));
    // Removes modules without remaining dependencies until only cycles remain.
    while let Some(free) = uses.iter().find(|(_, used)| used.is_empty()).map(|(part, _)| part.clone()) {
        uses.remove(&free);
        uses.values_mut().for_each(|used| _ = used.remove(&free));
    }
    assert!(uses.is_empty(), "these depend on each other: {uses:?}");
}

/// The modules that code below a path, except tests, names as `crate::part` or `crate::{part, ...}`.
fn read(path: &Path, parts: &mut BTreeSet<String>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| !path.ends_with("tests")).for_each(|path| read(&path, parts));
        return;
    }
    let text = std::fs::read_to_string(path).unwrap();
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        for named in line.split("crate::").skip(1) {
            let list = named.strip_prefix('{').unwrap_or(named);
            for name in list.split(',') {
                parts.extend(name.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned));
                if list.len() == named.len() {
                    break;
                }
            }
        }
    }
}
