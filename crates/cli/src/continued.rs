//! Shared by the commands that resume an earlier run: hashes of input files, and locks on output files.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use thiserror::Error;
use twox_hash::XxHash3_128;

/// A file that cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {file}")]
pub struct Unread {
    pub file: String,
    pub source: io::Error,
}

/// The number of bytes and their hash.
pub fn hash_of(mut source: impl Read) -> io::Result<(u64, XxHash3_128)> {
    let (mut hash, mut bytes, mut buffer) = (XxHash3_128::new(), 0, vec![0; 1 << 18]);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok((bytes, hash)),
            Ok(count) => {
                hash.write(buffer.get(..count).unwrap_or_default());
                bytes += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The sizes and hashes of files, in their order.
pub fn hash_files<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<String, Unread> {
    let mut hashes = String::new();
    for path in paths {
        let read = File::open(path).and_then(hash_of);
        let (bytes, hash) = read.map_err(|source| Unread { file: path.display().to_string(), source })?;
        hashes += &format!("{bytes}-{:032x} ", hash.finish_128());
    }
    Ok(hashes.trim_end().to_owned())
}

/// Locks a file while it is open. Returns false if another program holds the lock, and true on file systems without locks.
pub fn lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}
