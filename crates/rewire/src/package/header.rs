//! The first bytes of a package, common to all versions of the format.

use super::PackageError;
use std::fmt;
#[cfg(feature = "files")]
use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
};
use twox_hash::XxHash3_128;

/// The first bytes of a package. The line endings after the name reveal a transfer that converted them.
pub(super) const MAGIC: [u8; 8] = *b"rewire\r\n";

/// The newest format that this program reads and writes.
pub(super) const FORMAT: u32 = 3;

/// Bytes of a header.
pub(super) const BYTES: usize = 48;

/// Offset of the hash, the last field.
const HASH: usize = 32;

/// A version of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version([u32; 3]);

impl Version {
    /// The version of this program.
    pub fn own() -> Self {
        let parts = [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
        Self(parts.map(|part| part.parse().unwrap_or(0)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// The header of a package with this format and these content bytes.
pub(super) fn header(format: u32, content: &[u8]) -> [u8; BYTES] {
    let mut header = unsealed(format, (BYTES + content.len()) as u64);
    let hash = hash(&header, content);
    seal(&mut header, hash);
    header
}

/// The header of a file of this length, without a hash.
fn unsealed(format: u32, length: u64) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    let [major, minor, patch] = Version::own().0.map(u32::to_le_bytes);
    let fields: [&[u8]; 6] = [&MAGIC, &format.to_le_bytes(), &major, &minor, &patch, &length.to_le_bytes()];
    for (place, byte) in header.iter_mut().zip(fields.concat()) {
        *place = byte;
    }
    header
}

fn seal(header: &mut [u8; BYTES], hash: u128) {
    for (place, byte) in header.iter_mut().skip(HASH).zip(hash.to_le_bytes()) {
        *place = byte;
    }
}

/// Writes the header of a file whose content is complete.
#[cfg(feature = "files")]
pub(super) fn write(file: &mut File, format: u32) -> io::Result<()> {
    let mut header = unsealed(format, file.seek(SeekFrom::End(0))?);
    let mut hasher = XxHash3_128::new();
    hasher.write(&header[..HASH]);
    hash_rest(file, BYTES as u64, &mut hasher)?;
    seal(&mut header, hasher.finish_128());
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header)
}

/// Hashes a file from an offset on.
#[cfg(feature = "files")]
pub(super) fn hash_rest(file: &mut File, from: u64, hasher: &mut XxHash3_128) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    let mut part = vec![0; 1 << 18];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(()),
            count => hasher.write(&part[..count]),
        }
    }
}

/// The format of a package whose header was checked.
#[cfg(feature = "files")]
pub(super) fn format(bytes: &[u8]) -> u32 {
    bytes.get(MAGIC.len()..).and_then(|rest| rest.first_chunk()).map_or(FORMAT, |word| u32::from_le_bytes(*word))
}

/// Checks the header of a package and that its bytes are complete and unchanged; returns the bytes after the header.
pub(super) fn check(bytes: &[u8]) -> Result<&[u8], PackageError> {
    let magic = bytes.split_at_checked(MAGIC.len()).ok_or(PackageError::NotPackage)?.0;
    if magic != MAGIC {
        return Err(PackageError::NotPackage);
    }
    let missing = PackageError::Length { expected: BYTES as u64, actual: bytes.len() as u64 };
    let Some((header, content)) = bytes.split_first_chunk::<BYTES>() else { return Err(missing) };
    let word = |at: usize| header[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let format = word(MAGIC.len());
    match format {
        1..=FORMAT => {}
        0 => return Err(PackageError::part("head", "has format 0, which never existed")),
        _ => {
            let program = Version([word(12), word(16), word(20)]);
            return Err(PackageError::Newer { format, newest: FORMAT, program });
        }
    }
    let expected = u64::from(word(24)) | u64::from(word(28)) << 32;
    if expected != bytes.len() as u64 {
        return Err(PackageError::Length { expected, actual: bytes.len() as u64 });
    }
    let written = header[HASH..].first_chunk().map_or(0, |hash| u128::from_le_bytes(*hash));
    match hash(header, content) == written {
        true => Ok(content),
        false => Err(PackageError::Changed),
    }
}

/// The hash of all bytes except the hash itself.
fn hash(header: &[u8; BYTES], content: &[u8]) -> u128 {
    let mut hasher = XxHash3_128::new();
    hasher.write(&header[..HASH]);
    hasher.write(content);
    hasher.finish_128()
}
