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

/// A hash that stays the same from one process to the next.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
