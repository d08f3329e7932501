//! Contents of model files.

use crate::RunError;
use crate::model::Backing;
#[cfg(unix)]
use memmap2::Advice;
use memmap2::{Mmap, MmapMut};
use rewire_graph::SharedBytes;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Which files are mapped into memory. The system reads a page of a mapped file on first use and may evict it again.
/// Other files are copied.
///
/// A copy does not depend on its file. A mapped file must not be modified or truncated while in use. Replace it by
/// renaming another file over it, as [`replace_file`](crate::replace_file) does; users of the old content keep it. A
/// model checks before each run whether its mapped files were modified, which is an error. A file that is truncated
/// during a run still terminates the process, since the system has nothing to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = ParseMappingError, parse_err_fn = unknown)]
pub enum Mapping {
    /// Files of at least [`MAPPED_BYTES`].
    #[default]
    Large,
    /// No file: a model copies all its files and does not depend on them.
    Never,
}

/// The string is not the name of a [`Mapping`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("mapping: expected large or never, got `{0}`")]
pub struct ParseMappingError(String);

fn unknown(text: &str) -> ParseMappingError {
    ParseMappingError(text.to_owned())
}

/// Size from which [`Mapping::Large`] maps a file; copying a file of this size takes a few milliseconds.
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

    /// Checks whether the bytes are unchanged since they were read; `None` for a copy.
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
/// The system's error; [`ErrorKind::InvalidInput`] if it is not a file, [`ErrorKind::OutOfMemory`] if memory for a copy
/// cannot be allocated.
pub fn read_file(path: &Path, mapping: Mapping) -> Result<FileContent> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a file"));
    }
    if mapping == Mapping::Never || found.len() < MAPPED_BYTES {
        return Ok(FileContent { bytes: copied(&mut file, found.len())?, mapped: None });
    }
    // SAFETY: this crate does not write to the file. Other programs might: the docs of `Mapping` forbid it, models
    // check before each run, and data read from the bytes is validated like any outside data.
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

/// Copies the content to memory that is aligned to a page, like a mapped file.
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

/// File metadata that changes if a file is modified or truncated.
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

/// A mapped file, with its metadata when it was opened.
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

#[cfg(unix)]
impl MappedFile {
    /// Advises the system about a part of the file. Reads are correct without it.
    fn advise(&self, advice: Advice, part: &[u8]) {
        let offset = part.as_ptr().addr().checked_sub(self.map.as_ptr().addr());
        if let Some(offset) = offset.filter(|offset| offset + part.len() <= self.map.len()) {
            drop(self.map.advise_range(advice, offset, part.len()));
        }
    }
}

impl Backing for MappedFile {
    fn check(&self) -> std::result::Result<(), RunError> {
        match self.file.metadata() {
            Ok(found) if State::of(&found) == self.state => Ok(()),
            _ => Err(RunError::FileChanged { path: self.path.clone() }),
        }
    }

    #[cfg(unix)]
    fn read_by_rows(&self, part: &[u8]) {
        self.advise(Advice::Random, part);
    }

    #[cfg(unix)]
    fn read_ahead(&self, part: &[u8]) {
        self.advise(Advice::WillNeed, part);
    }
}
