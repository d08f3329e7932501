//! Floats in files; unavailable without the feature `files`.

use std::io::{ErrorKind, Result};
use std::ops::Range;
use std::path::Path;

/// Floats in a file; never exists without the feature `files`.
#[derive(Debug)]
pub enum FileFloats {}

impl FileFloats {
    /// An error.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`].
    pub fn zeros(_: &Path, _: usize) -> Result<Self> {
        Err(ErrorKind::Unsupported.into())
    }

    /// The same floats in another file.
    ///
    /// # Errors
    /// None.
    pub fn copied(&self) -> Result<Self> {
        match *self {}
    }

    /// The folder of the file.
    pub fn folder(&self) -> &Path {
        match *self {}
    }

    /// The floats.
    pub fn values(&self) -> &[f32] {
        match *self {}
    }

    /// The floats, to be changed.
    pub fn values_mut(&mut self) -> &mut [f32] {
        match *self {}
    }

    /// Asks for ranges of floats.
    pub fn read_ahead(&self, _: impl Iterator<Item = Range<usize>>) {
        match *self {}
    }
}

impl AsRef<[u8]> for FileFloats {
    fn as_ref(&self) -> &[u8] {
        match *self {}
    }
}
