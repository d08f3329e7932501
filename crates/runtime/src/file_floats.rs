//! Floats in files.

#[cfg(unix)]
use memmap2::Advice;
use memmap2::MmapMut;
use std::fmt;
use std::io::{ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Floats in an unnamed file, which is mapped into memory. The system caches used pages, and writes others to the file
/// when memory is short. The file is deleted when the value is dropped or the process ends.
///
/// ```
/// let mut floats = rewire_runtime::FileFloats::zeros(&std::env::temp_dir(), 1000)?;
/// floats.values_mut()[7] = 1.5;
/// assert_eq!(floats.values()[6..8], [0.0, 1.5]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FileFloats {
    map: MmapMut,
    len: usize,
    folder: PathBuf,
}

impl FileFloats {
    /// Reserves the space of `len` zeros in a folder.
    ///
    /// # Errors
    /// The system's error, such as [`ErrorKind::StorageFull`].
    pub fn zeros(folder: &Path, len: usize) -> Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        let bytes = len.checked_mul(size_of::<f32>()).ok_or(ErrorKind::OutOfMemory)?.max(size_of::<f32>());
        reserve(&file, bytes as u64)?;
        // SAFETY: the file has no name, so nothing else changes or truncates it.
        let map = unsafe { MmapMut::map_mut(&file)? };
        // Rows are read one by one: reading the pages around them would evict others.
        #[cfg(unix)]
        map.advise(Advice::Random)?;
        Ok(Self { map, len, folder: folder.to_owned() })
    }

    /// The same floats in another file of the folder.
    ///
    /// # Errors
    /// As [`FileFloats::zeros`].
    pub fn copied(&self) -> Result<Self> {
        let mut copy = Self::zeros(&self.folder, self.len)?;
        copy.values_mut().copy_from_slice(self.values());
        Ok(copy)
    }

    /// The folder of the file.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The floats.
    pub fn values(&self) -> &[f32] {
        bytemuck::cast_slice(self.as_ref())
    }

    /// The floats, to be changed.
    pub fn values_mut(&mut self) -> &mut [f32] {
        let bytes = self.len * size_of::<f32>();
        bytemuck::cast_slice_mut(self.map.get_mut(..bytes).unwrap_or(&mut []))
    }

    /// Asks the system to read ranges of floats from the disk, without waiting for them. It may do nothing.
    #[cfg(unix)]
    pub fn read_ahead(&self, ranges: impl Iterator<Item = Range<usize>>) {
        for range in ranges {
            let (start, end) = (range.start.min(self.len), range.end.min(self.len));
            if start < end {
                let bytes = (end - start) * size_of::<f32>();
                // Reads wait for the disk without the advice.
                drop(self.map.advise_range(Advice::WillNeed, start * size_of::<f32>(), bytes));
            }
        }
    }

    /// Does nothing on this system.
    #[cfg(not(unix))]
    pub fn read_ahead(&self, _: impl Iterator<Item = Range<usize>>) {}
}

impl AsRef<[u8]> for FileFloats {
    fn as_ref(&self) -> &[u8] {
        self.map.get(..self.len * size_of::<f32>()).unwrap_or(&[])
    }
}

impl fmt::Debug for FileFloats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} floats in {}", self.len, self.folder.display())
    }
}

/// Reserves disk space, since a write to a page without space ends the process.
#[cfg(target_os = "linux")]
fn reserve(file: &std::fs::File, bytes: u64) -> Result<()> {
    use std::os::fd::AsRawFd;
    let size = libc::off_t::try_from(bytes).map_err(|_| ErrorKind::OutOfMemory)?;
    // SAFETY: the descriptor is that of the open file.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) } {
        0 => Ok(()),
        libc::EOPNOTSUPP | libc::EINVAL => file.set_len(bytes),
        code => Err(std::io::Error::from_raw_os_error(code)),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(file: &std::fs::File, bytes: u64) -> Result<()> {
    file.set_len(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_apart_and_nothing_is_left_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut floats = FileFloats::zeros(folder.path(), 5000).unwrap();
        floats.values_mut().iter_mut().enumerate().for_each(|(n, value)| *value = n as f32);
        let copy = floats.copied().unwrap();
        floats.values_mut()[4999] = -1.0;
        floats.read_ahead([0..3, 4000..9000, 7000..8000].into_iter());
        assert_eq!((copy.values()[4999], floats.values()[4999], floats.values().len()), (4999.0, -1.0, 5000));
        assert_eq!((copy.as_ref().len(), std::fs::read_dir(folder.path()).unwrap().count()), (20_000, 0));
        assert!(FileFloats::zeros(folder.path(), 0).unwrap().values().is_empty());
        assert!(FileFloats::zeros(folder.path(), 1 << 50).is_err());
    }
}
