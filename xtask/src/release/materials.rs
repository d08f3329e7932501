//! Writes the bill of materials, which lists all libraries in the built files, as CycloneDX.

use super::text;
use crate::shell::root;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The dependencies that are linked into these packages, sorted by name, without build and development dependencies.
pub(super) fn contained<'a>(metadata: &'a Value, names: &[&str]) -> Vec<&'a Value> {
    let packages: BTreeMap<&str, &Value> =
        metadata["packages"].as_array().into_iter().flatten().map(|package| (text(package, "id"), package)).collect();
    let nodes: BTreeMap<&str, &Value> =
        metadata["resolve"]["nodes"].as_array().into_iter().flatten().map(|node| (text(node, "id"), node)).collect();
    let mut open: Vec<&str> =
        packages.iter().filter(|(_, package)| names.contains(&text(package, "name"))).map(|(id, _)| *id).collect();
    let mut found: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    while let Some(id) = open.pop() {
        let (Some(package), Some(node)) = (packages.get(id), nodes.get(id)) else { continue };
        if found.insert((text(package, "name"), text(package, "version")), package).is_some() {
            continue;
        }
        let is_linked = |dependency: &&Value| {
            dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
        };
        let dependencies = node["deps"].as_array().into_iter().flatten().filter(is_linked);
        open.extend(dependencies.map(|dependency| text(dependency, "pkg")));
    }
    // Workspace crates have no source and are not listed.
    found.into_values().filter(|package| !package["source"].is_null()).collect()
}

/// The union of several lists of packages, sorted by name.
pub(super) fn merged<'a>(lists: &[Vec<&'a Value>]) -> Vec<&'a Value> {
    let all = lists.iter().flatten().map(|package| ((text(package, "name"), text(package, "version")), *package));
    all.collect::<BTreeMap<_, _>>().into_values().collect()
}

/// The document. It has no time and no serial number, so that equal libraries result in equal bytes.
pub(super) fn bill(packages: &[&Value], version: &str) -> Result<Value, String> {
    let path = root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let components: Vec<Value> = packages.iter().map(|package| component(package, &lock)).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "rewire", "version": version } },
        "components": components,
    }))
}

fn component(package: &Value, lock: &str) -> Value {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let entry = lock.split_once(&format!("name = \"{name}\"\nversion = \"{version}\"\n")).map_or("", |(_, rest)| rest);
    let entry = entry.split("\n\n").next().unwrap_or_default();
    let checksum = entry.lines().find_map(|line| line.strip_prefix("checksum = \"")?.strip_suffix('"'));
    let mut component = json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
        "licenses": [{ "expression": text(package, "license") }],
    });
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_linked_are_listed_with_their_checksums() {
        // A build fetches the crates of its own platform alone.
        let platform = super::super::dist::host().unwrap();
        let metadata = super::super::metadata(&["--offline", "--filter-platform", &platform]).unwrap();
        let packages = merged(&[contained(&metadata, &["rewire-cli"]), contained(&metadata, &["rewire-python"])]);
        let bill = bill(&packages, "1.2.3").unwrap();
        let components = bill["components"].as_array().unwrap();
        let find = |name: &str| components.iter().find(|component| component["name"] == name);
        let half = find("half").unwrap();
        assert_eq!(half["hashes"][0]["content"].as_str().map(str::len), Some(64), "{half}");
        assert!(half["licenses"][0]["expression"].as_str().unwrap().contains("MIT"), "{half}");
        assert!(find("proptest").is_none() && find("rewire-graph").is_none() && components.len() > 50);
        assert!(["hyper", "parquet", "prost-reflect", "pyo3"].into_iter().all(|name| find(name).is_some()));
        let page = super::super::licences::page(&packages).unwrap();
        assert!(page.contains("\nhalf ") && page.contains("Permission is hereby granted"));
    }
}
