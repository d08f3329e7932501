//! A file that is written incrementally and moved into place when it is complete.

use super::PredictError;
use crate::continued::{hash_of, lock};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_128;

/// The durable bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub bytes: u64,
    /// XXH3 of them, 128 bits.
    pub hash: String,
}

/// An unfinished file, next to its final path.
pub struct Partial {
    place: PathBuf,
    own: PathBuf,
    file: File,
    bytes: u64,
    hash: XxHash3_128,
}

/// The final path of a file: the target of a link, not the link.
pub fn place(path: &Path) -> Result<PathBuf, PredictError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => std::fs::canonicalize(path).map_err(unwritten(path)),
        Ok(_) => Err(PredictError::NoFile { file: path.display().to_string() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(unwritten(path)(error)),
    }
}

/// A path with an additional extension.
pub fn beside(place: &Path, ending: &str) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    place.with_file_name(name)
}

/// The path of the unfinished file.
pub fn partial(place: &Path) -> PathBuf {
    beside(place, ".partial")
}

impl Partial {
    /// Creates a file. The remains of another run are lost.
    pub fn create(place: &Path) -> Result<Self, PredictError> {
        let new = Self::open(place)?;
        new.file.set_len(0).map_err(unwritten(&new.own))?;
        Ok(new)
    }

    /// Continues after the durable bytes of a file.
    pub fn resume(place: &Path, mark: &Mark) -> Result<Self, PredictError> {
        let mut old = Self::open(place)?;
        let unread = |source| PredictError::Read { file: old.own.display().to_string(), source };
        let (bytes, hash) = hash_of((&old.file).take(mark.bytes)).map_err(unread)?;
        (old.bytes, old.hash) = (bytes, hash);
        if old.mark() != *mark {
            let reason = "differs from what the previous run wrote".to_owned();
            return Err(PredictError::Damaged { file: old.own.display().to_string(), reason });
        }
        old.file.set_len(mark.bytes).map_err(unwritten(&old.own))?;
        old.file.seek(SeekFrom::Start(mark.bytes)).map_err(unwritten(&old.own))?;
        Ok(old)
    }

    fn open(place: &Path) -> Result<Self, PredictError> {
        let own = partial(place);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&own);
        let file = file.map_err(unwritten(&own))?;
        if !lock(&file) {
            return Err(PredictError::Busy { file: place.display().to_string() });
        }
        Ok(Self { place: place.to_owned(), own, file, bytes: 0, hash: XxHash3_128::new() })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), PredictError> {
        self.file.write_all(bytes).map_err(unwritten(&self.place))?;
        self.hash.write(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Waits until everything appended would survive a loss of power.
    pub fn sync(&mut self) -> Result<Mark, PredictError> {
        self.file.sync_data().map_err(unwritten(&self.place))?;
        Ok(self.mark())
    }

    fn mark(&self) -> Mark {
        Mark { bytes: self.bytes, hash: format!("{:032x}", self.hash.finish_128()) }
    }

    /// Appends these bytes and moves the file into place.
    pub fn finish(mut self, foot: &[u8]) -> Result<(), PredictError> {
        self.append(foot)?;
        self.file.sync_all().map_err(unwritten(&self.place))?;
        std::fs::rename(&self.own, &self.place).map_err(unwritten(&self.place))?;
        sync_folder(&self.place);
        Ok(())
    }
}

/// Makes a new name survive a loss of power, if the system supports it.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    drop(File::open(folder).and_then(|folder| folder.sync_all()));
}

pub fn unwritten(path: &Path) -> impl FnOnce(io::Error) -> PredictError + use<> {
    let file = path.display().to_string();
    move |source| PredictError::Write { file, source }
}
