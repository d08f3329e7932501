//! Files that sessions keep between processes.

use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file whole: a program that reads meanwhile finds the old one or the new one.
pub(crate) fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let own = path.with_extension(format!("{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let written = std::fs::write(&own, content).and_then(|()| std::fs::rename(&own, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&own)))
}

/// Removes files of a folder whose names begin with `prefix`, the oldest first, until `most` are left.
pub(crate) fn prune(folder: &Path, prefix: &str, most: usize) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    files.sort();
    let excess = files.len().saturating_sub(most);
    files.iter().take(excess).try_for_each(|(_, path)| std::fs::remove_file(path))
}

/// A hash that stays the same from one process to the next.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    hash_all(&[bytes])
}

/// [`hash`] of several parts.
pub(crate) fn hash_all(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_go() {
        let folder = std::env::temp_dir().join(format!("rewire-prune-{}", std::process::id()));
        for name in ["a-1", "a-2", "a-3", "b-1"] {
            replace(&folder.join(name), b"").unwrap();
            let age = std::time::Duration::from_secs(match name {
                "a-2" => 100,
                "b-1" => 1000,
                _ => 10,
            });
            let file = std::fs::File::options().write(true).open(folder.join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        }
        prune(&folder, "a-", 2).unwrap();
        let left: std::collections::BTreeSet<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left.into_iter().collect::<Vec<_>>(), ["a-1", "a-3", "b-1"]);
    }
}
