//! A hash of what emitted kernels follow from: what was measured of them is worth nothing once it changes.

use std::fs::{read, read_dir};
use std::io;
use std::path::{Path, PathBuf};

/// The emitter, what it is given, the functions of scalars, and the templates. Some lie outside the package.
const SOURCES: [&str; 4] = ["src/emit", "src/plan", "../graph/src/pointwise", "shaders"];

fn main() -> io::Result<()> {
    let mut files = Vec::new();
    for folder in SOURCES.map(Path::new).into_iter().filter(|folder| folder.exists()) {
        println!("cargo::rerun-if-changed={}", folder.display());
        list(folder, &mut files)?;
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
