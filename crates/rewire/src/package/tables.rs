//! Embedding tables in a separate file, which packages share.

use super::PackageError;
use crate::weights::Weights;
use rewire_graph::SharedBytes;
use rewire_runtime::hash;
use serde::{Deserialize, Serialize};
use std::fmt;
#[cfg(feature = "files")]
use twox_hash::XxHash3_128;

/// Bytes of the first number of a safetensors file, which holds the length of its header.
const LENGTH: usize = 8;

/// XXH3 of 128 bits, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hash(String);

impl Hash {
    pub fn of(bytes: &[u8]) -> Self {
        Self::from(hash(bytes))
    }
}

impl From<u128> for Hash {
    fn from(hash: u128) -> Self {
        Self(format!("{hash:032x}"))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A package's description of its file of tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The name of the file, next to the package.
    pub file: String,
    bytes: u64,
    /// Hash of names, types and shapes; in files of this program, also of the content's hash.
    header: Hash,
    /// Hash of the tensors.
    content: Hash,
}

/// Embedding tables in a separate safetensors file.
#[derive(Clone, Debug)]
pub struct Tables {
    pub(super) identity: Identity,
    pub(super) data: SharedTables,
}

/// A file of tables in memory.
#[derive(Clone)]
pub(super) struct SharedTables {
    bytes: SharedBytes,
    pub weights: Weights<'static>,
}

impl fmt::Debug for SharedTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.weights.fmt(f)
    }
}

/// The header of a safetensors file with its length, and the bytes after it.
fn parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u64::from_le_bytes(*bytes.first_chunk::<LENGTH>()?);
    bytes.split_at_checked(LENGTH.checked_add(usize::try_from(length).ok()?)?)
}

impl SharedTables {
    pub fn of(bytes: SharedBytes) -> Result<Self, PackageError> {
        Ok(Self { weights: Weights::shared(bytes.clone())?, bytes })
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        parts((*self.bytes).as_ref()).unwrap_or((&[], &[]))
    }

    /// Hashes the whole file.
    fn identity(&self, file: &str) -> Identity {
        let (header, content) = self.parts();
        Identity {
            file: file.to_owned(),
            bytes: (header.len() + content.len()) as u64,
            header: Hash::of(header),
            content: Hash::of(content),
        }
    }
}

impl Identity {
    /// Checks the length and the header of a file; its tensors are not read.
    pub fn check(&self, bytes: SharedBytes) -> Result<SharedTables, PackageError> {
        let actual = (*bytes).as_ref().len() as u64;
        if actual != self.bytes {
            return Err(PackageError::Length { expected: self.bytes, actual });
        }
        match parts((*bytes).as_ref()) {
            Some((header, _)) if Hash::of(header) == self.header => SharedTables::of(bytes),
            _ => Err(PackageError::OtherTables),
        }
    }

    /// Checks the tensors of a file that [`Identity::check`] has accepted.
    pub fn check_content(&self, tables: &SharedTables) -> Result<(), PackageError> {
        match Hash::of(tables.parts().1) == self.content {
            true => Ok(()),
            false => Err(PackageError::Changed),
        }
    }
}

impl Tables {
    /// Parses the bytes of a safetensors file that will lie next to the package under this name. Reads all of them.
    ///
    /// # Errors
    /// [`PackageError::Weights`] if the bytes are not a safetensors file, [`PackageError::Part`] if `file` is not a file
    /// name.
    pub fn parse(file: &str, bytes: Vec<u8>) -> Result<Self, PackageError> {
        Self::of(file, std::sync::Arc::new(bytes))
    }

    fn of(file: &str, bytes: SharedBytes) -> Result<Self, PackageError> {
        check_name(file)?;
        let data = SharedTables::of(bytes)?;
        Ok(Self { identity: data.identity(file), data })
    }
}

/// A package may only name a file next to it.
pub(super) fn check_name(file: &str) -> Result<(), PackageError> {
    match file.is_empty() || file.contains(['/', '\\', ':', '\0']) || file == "." || file == ".." {
        true => {
            Err(PackageError::part("head", format!("names {file:?}, which is not a file in the folder of the package")))
        }
        false => Ok(()),
    }
}

#[cfg(feature = "files")]
mod file {
    use super::*;
    use crate::package::header::hash_rest;
    use crate::weights::{Described, described, header};
    use rewire_graph::HostTensor;
    use rewire_runtime::{Mapping, create_file_with, read_file};
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io::{ErrorKind, Seek, SeekFrom, Write};
    use std::path::Path;

    /// The metadata key of the content's hash.
    const CONTENT: &str = "content";

    impl Tables {
        /// Writes tables to a safetensors file, atomically. An existing file is kept if it holds the same tables, and is an
        /// error otherwise, because other packages may read it.
        ///
        /// # Errors
        /// [`PackageError::Write`] and [`PackageError::OtherTables`].
        pub fn write(path: &Path, tables: &BTreeMap<String, HostTensor>) -> Result<Self, PackageError> {
            let unwritten = |source| PackageError::Write { path: path.to_owned(), source };
            check_name(&name_of(path))?;
            if !path.try_exists().map_err(unwritten)? {
                create(path, |file| store(file, tables, |_, _| Ok(()))).map_err(unwritten)?;
            }
            let found = Self::found(path)?;
            let of_file = |source| PackageError::Tables { path: path.to_owned(), source: Box::new(source) };
            let stored = found.data.weights.tensors().map_err(|error| of_file(error.into()))?;
            match tables.iter().all(|(name, tensor)| stored.get(name) == Some(tensor)) {
                true => Ok(found),
                false => Err(of_file(PackageError::OtherTables)),
            }
        }

        /// [`Tables::write`] with changes that `change` writes over the content, so that memory does not hold it;
        /// `change` receives the offsets of tensors in the file.
        pub(crate) fn write_changed(
            path: &Path,
            tables: &BTreeMap<String, HostTensor>,
            change: impl FnOnce(&mut File, &BTreeMap<&str, u64>) -> std::io::Result<()>,
        ) -> Result<Self, PackageError> {
            let unwritten = |source| PackageError::Write { path: path.to_owned(), source };
            let content = create(path, |file| store(file, tables, change)).map_err(unwritten)?;
            let found = Self::found(path)?;
            match found.identity.content == content {
                true => Ok(found),
                false => {
                    Err(PackageError::Tables { path: path.to_owned(), source: Box::new(PackageError::OtherTables) })
                }
            }
        }

        /// The tables in a file.
        fn found(path: &Path) -> Result<Self, PackageError> {
            let unread = |source| PackageError::Write { path: path.to_owned(), source };
            let file = read_file(path, Mapping::Large).map_err(unread)?;
            let found = Self::of(&name_of(path), file.bytes().clone());
            found.map_err(|source| PackageError::Tables { path: path.to_owned(), source: Box::new(source) })
        }
    }

    fn name_of(path: &Path) -> String {
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Creates a file, unless another program has created it; returns the hash of its own content.
    fn create(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<Hash>) -> std::io::Result<Hash> {
        let mut content = Err(ErrorKind::Other.into());
        let created = create_file_with(path, |file| {
            content = write(file);
            content.as_ref().map(drop).map_err(|error| error.kind().into())
        });
        match created {
            // The tables of the other program are compared.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => content,
            Err(error) => content.and(Err(error)),
            Ok(()) => content,
        }
    }

    /// Writes a file, changes it, and finally writes the hash of its content into its header.
    fn store(
        file: &mut File,
        tables: &BTreeMap<String, HostTensor>,
        change: impl FnOnce(&mut File, &BTreeMap<&str, u64>) -> std::io::Result<()>,
    ) -> std::io::Result<Hash> {
        let blank = "0".repeat(Hash::of(&[]).0.len());
        let metadata = BTreeMap::from([(CONTENT.to_owned(), blank.clone())]);
        let described: Described = tables.iter().map(|(name, table)| (name.as_str(), described(table))).collect();
        let header = header(&described, &metadata).map_err(std::io::Error::other)?;
        let place = header.bytes.windows(blank.len()).position(|window| window == blank.as_bytes());
        let places = header.write(file, tables)?;
        change(file, &places)?;
        let mut hasher = XxHash3_128::new();
        hash_rest(file, header.bytes.len() as u64, &mut hasher)?;
        let content = Hash::from(hasher.finish_128());
        file.seek(SeekFrom::Start(place.unwrap_or(0) as u64))?;
        file.write_all(content.0.as_bytes())?;
        Ok(content)
    }
}
