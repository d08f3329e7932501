//! The content of files that models are made of.

use crate::RunError;
use crate::model::Backing;
use memmap2::{Mmap, MmapMut};
use rewire_graph::SharedBytes;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Which files are mapped into memory, where the system reads a page when it is asked for and may forget it again. All others are copied.
///
/// A copy does not depend on its file any more. A mapped file must not be written to or cut while it is in use: replace it by renaming another
/// one over it, as [`replace_file`](crate::replace_file) does, which leaves the old content to those who have it. A model looks before each
/// run whether its mapped files were changed in place, which is an error. A file that is cut while a run reads it ends the process all the
/// same, as the system has nothing to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = ParseMappingError, parse_err_fn = unknown)]
pub enum Mapping {
    /// Files of [`MAPPED_BYTES`] and more.
    #[default]
    Large,
    /// None: a model takes the memory of all its files, and depends on none of them.
    Never,
}

/// A text that names no [`Mapping`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("mapping: expected large or never, got `{0}`")]
pub struct ParseMappingError(String);

fn unknown(text: &str) -> ParseMappingError {
    ParseMappingError(text.to_owned())
}

/// Bytes from which on [`Mapping::Large`] maps a file: copying one of so many takes a few milliseconds.
pub const MAPPED_BYTES: u64 = 4 << 20;

/// The content of a file.
#[derive(Clone)]
pub struct FileContent {
    bytes: SharedBytes,
    mapped: Option<Arc<MappedFile>>,
}

impl FileContent {
    /// The bytes.
    pub fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// What tells whether the bytes are still those that were read, if they are not a copy.
    pub fn backing(&self) -> Option<Arc<dyn Backing>> {
        self.mapped.clone().map(|mapped| mapped as Arc<dyn Backing>)
    }
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", (*self.bytes).as_ref().len())
    }
}

/// Reads a file.
///
/// ```
/// use rewire_runtime::{Mapping, read_file, replace_file};
/// let path = std::env::temp_dir().join(format!("rewire-read-{}", std::process::id()));
/// replace_file(&path, b"content")?;
/// let content = read_file(&path, Mapping::Large)?;
/// replace_file(&path, b"another one")?;
/// assert_eq!((**content.bytes()).as_ref(), b"content");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// What the system says; [`ErrorKind::InvalidInput`] where it is not a file, [`ErrorKind::OutOfMemory`] where there is no room for a copy.
pub fn read_file(path: &Path, mapping: Mapping) -> Result<FileContent> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a file"));
    }
    if mapping == Mapping::Never || found.len() < MAPPED_BYTES {
        return Ok(FileContent { bytes: copied(&mut file, found.len())?, mapped: None });
    }
    // SAFETY: nothing here writes to the file. Of others this cannot be known: the docs of `Mapping` ask for it, models look before each run, and
    // what is read from the bytes is checked as any outside data.
    match unsafe { Mmap::map(&file) } {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Ok(FileContent { bytes: copied(&mut file, found.len())?, mapped: None })
        }
        map => {
            let mapped = Arc::new(MappedFile { path: path.to_owned(), state: State::of(&found), file, map: map? });
            Ok(FileContent { bytes: mapped.clone(), mapped: Some(mapped) })
        }
    }
}

/// The content in memory of its own, which begins with a page as a mapped file does.
fn copied(file: &mut File, len: u64) -> Result<SharedBytes> {
    let len = usize::try_from(len).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
    if len == 0 {
        return Ok(Arc::new([]));
    }
    match MmapMut::map_anon(len) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len)?;
            file.take(len as u64).read_to_end(&mut bytes)?;
            Ok(Arc::new(bytes))
        }
        memory => {
            let mut memory = memory?;
            file.read_exact(&mut memory)?;
            Ok(Arc::new(memory.make_read_only()?))
        }
    }
}

/// What changes where a file is written to or cut.
#[derive(Debug, PartialEq, Eq)]
struct State {
    len: u64,
    modified: Option<SystemTime>,
}

impl State {
    fn of(file: &Metadata) -> Self {
        Self { len: file.len(), modified: file.modified().ok() }
    }
}

/// A file in memory, as it was when it was opened.
struct MappedFile {
    path: PathBuf,
    file: File,
    state: State,
    map: Mmap,
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Backing for MappedFile {
    fn check(&self) -> std::result::Result<(), RunError> {
        match self.file.metadata() {
            Ok(found) if State::of(&found) == self.state => Ok(()),
            _ => Err(RunError::FileChanged { path: self.path.clone() }),
        }
    }
}
