//! Computes a hash of the sources of emitted kernels. Measurements of kernels become invalid when it changes.

use std::fs::{read, read_dir};
use std::io;
use std::path::{Path, PathBuf};

/// The sources of emitted kernels: plans, nests and their schedules, proofs, scalar functions, storage formats and
/// templates.
const SOURCES: [&str; 17] = [
    "shaders",
    "src",
    "../graph-rewrite/src/cost",
    "../graph-rewrite/src/count",
    "../graph-rewrite/src/device",
    "../graph-rewrite/src/plan",
    "../graph-rewrite/src/prove",
    "../graph-rewrite/src/schedule",
    "../graph/src/code.rs",
    "../graph/src/dim.rs",
    "../graph/src/dtype.rs",
    "../graph/src/limits.rs",
    "../graph/src/nest",
    "../graph/src/number.rs",
    "../graph/src/op/reduce.rs",
    "../graph/src/pointwise",
    "../graph/src/storage",
];

fn main() -> io::Result<()> {
    let is_repository = Path::new("../graph").exists();
    let mut files = Vec::new();
    for source in SOURCES.map(Path::new) {
        if !source.exists() {
            // A published package contains no files of other crates.
            if is_repository {
                println!("cargo::error=`SOURCES` of build.rs names {}, which is not there", source.display());
            }
            continue;
        }
        println!("cargo::rerun-if-changed={}", source.display());
        match source.is_dir() {
            true => list(source, &mut files)?,
            false => files.push(source.to_owned()),
        }
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for file in &files {
        hash = fnv1a(hash, &read(file)?);
    }
    println!("cargo::rustc-env=REWIRE_EMITTER={hash:016x}");
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => list(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
