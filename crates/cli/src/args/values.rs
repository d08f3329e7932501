//! Values of options.

use bytesize::ByteSize;
use rewire::rank::Embedded;
use rewire_measure::MOST_SECONDS;
use std::num::NonZeroU64;

pub fn embedded(text: &str) -> Embedded {
    if text == "users" { Embedded::Users } else { Embedded::Items }
}

/// An ASCII character that is not part of a number or of CSV syntax.
pub fn ascii(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"+-.\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("expected one ASCII character that is not part of a number, such as ; or |".to_owned()),
    }
}

/// A file name without a folder.
pub fn file_name(text: &str) -> Result<String, String> {
    match std::path::Path::new(text).file_name() {
        Some(name) if name == text => Ok(text.to_owned()),
        _ => Err("expected the name of a file, without a folder".to_owned()),
    }
}

/// A number of bytes, such as 512, 64KiB or 8GB.
pub fn bytes(text: &str) -> Result<u64, String> {
    let size: Result<ByteSize, _> = text.parse();
    size.map(|size| size.as_u64()).map_err(|_| "expected a number of bytes, such as 512, 64KiB or 8GB".to_owned())
}

/// [`bytes`], at least 1.
pub fn nonzero_bytes(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(bytes(text)?).ok_or_else(|| "expected at least 1 byte".to_owned())
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=MOST_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("expected a number from 0 to {MOST_SECONDS}"))
}
