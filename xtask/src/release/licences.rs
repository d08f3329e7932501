//! Collects the licence texts of all dependencies.

use super::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Prefixes of the names of licence and notice files.
const FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// All texts without duplicates, each with the packages that it applies to.
pub(super) fn page(packages: &[&Value]) -> Result<String, String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in packages {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        list.push_str(&format!("{name}: {}\n", text(package, "license")));
        for licence in of(package)? {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<(String, String)> =
        texts.into_iter().map(|(licence, names)| (names.join(", "), licence)).collect();
    texts.sort();
    let texts = texts.iter().map(|(names, licence)| format!("\n{}\n{names}\n\n{licence}\n", "-".repeat(80)));
    Ok(format!("Licences of the libraries that rewire contains.\n\n{list}{}", texts.collect::<String>()))
}

/// The texts of a package's licence and notice files.
fn of(package: &Value) -> Result<Vec<String>, String> {
    let folder = Path::new(text(package, "manifest_path")).parent().unwrap_or(Path::new(""));
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && FILES.iter().any(|begin| name.starts_with(begin)) {
            found.push(path);
        }
    }
    found.sort();
    let read = |path: &std::path::PathBuf| std::fs::read(path).map_err(failed);
    found.iter().map(|path| Ok(String::from_utf8_lossy(&read(path)?).replace("\r\n", "\n").trim().to_owned())).collect()
}
