//! Reads models from files of any supported format.

use crate::{ImportError, ImportedModel};
#[cfg(feature = "readers")]
use crate::{onnx, pt2};
use std::path::Path;

/// Reads a file of one format.
type Reader = fn(&Path) -> Result<ImportedModel, ImportError>;

/// File extensions with the reader of each.
#[cfg(feature = "readers")]
const READERS: [(&str, Reader); 2] = [("onnx", onnx::open), ("pt2", pt2::read)];
#[cfg(not(feature = "readers"))]
const READERS: [(&str, Reader); 2] = [("onnx", no_reader), ("pt2", no_reader)];

#[cfg(not(feature = "readers"))]
fn no_reader(path: &Path) -> Result<ImportedModel, ImportError> {
    Err(ImportError::NoReader { path: path.display().to_string() })
}

fn reader(path: &Path) -> Option<Reader> {
    let ending = path.extension()?;
    READERS.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known)).map(|(_, reader)| *reader)
}

/// True if the file has the extension of an exported model.
pub fn is_model(path: &Path) -> bool {
    reader(path).is_some()
}

/// Reads the model of a file. The extension determines the format.
///
/// # Errors
/// [`ImportError::Format`] if the extension is not supported, [`ImportError::NoReader`] in a build without feature `readers`,
/// or the error of the format's reader.
pub fn read(path: &Path) -> Result<ImportedModel, ImportError> {
    let unknown = || ImportError::Format { path: path.display().to_string() };
    reader(path).ok_or_else(unknown)?(path)
}

/// Reads a model from bytes: an archive of `torch.export.save`, otherwise an ONNX model without external data.
///
/// # Errors
/// The error of the format's reader.
#[cfg(feature = "readers")]
pub fn parse(bytes: &[u8]) -> Result<ImportedModel, ImportError> {
    if bytes.starts_with(b"PK") { pt2::parse(bytes) } else { onnx::from_bytes(bytes) }
}
