//! What the fuzzer begins with, and what it found: no target panics on it.

use rewire_tests::fuzz::TARGETS;
use std::path::Path;

/// The stored findings of a target.
fn found(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/found").join(name);
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.display().to_string(), std::fs::read(path).unwrap())
    };
    entries.map(entry).collect()
}

#[test]
fn targets_stand_their_seeds_and_findings() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty() && seeds.iter().any(|seed| seed.len() <= target.longest), "{}", target.name);
        let seeds = seeds.into_iter().enumerate().map(|(n, bytes)| (format!("seed {n}"), bytes));
        for (title, bytes) in seeds.chain(found(target.name)) {
            eprintln!("{}: {title}", target.name);
            (target.run)(&bytes);
        }
    }
}
