use super::Version;
use crate::weights::WeightsError;
use rewire_graph::Coded;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a package could not be read or written.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "package.")]
#[non_exhaustive]
pub enum PackageError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file was read, but its content is invalid.
    #[error("{} is not a valid package", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<PackageError>,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file with the package's tables is missing or invalid.
    #[error("{} does not hold the tables of the package", path.display())]
    Tables {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<PackageError>,
    },
    /// The file holds tables of another package.
    #[error("its tables differ from those of the package in names, types, shapes or content")]
    OtherTables,
    /// The tables are in a separate file, which was not given.
    #[error("its tables are in the file `{file}`: read both")]
    NoTables {
        /// The name of the file.
        file: String,
    },
    /// The bytes are not a package.
    #[error("it is not a package: its first bytes differ")]
    NotPackage,
    /// The package was written by a newer version of this program.
    #[error("it has format {format}: this program reads up to {newest}, rewire {program} reads it")]
    Newer {
        /// Its format.
        format: u32,
        /// The newest format that this program reads.
        newest: u32,
        /// The program that wrote it.
        program: Version,
    },
    /// The package was truncated, or bytes were appended.
    #[error("it has {actual} bytes: expected {expected}")]
    Length {
        /// Its original length in bytes.
        expected: u64,
        /// Its current length in bytes.
        actual: u64,
    },
    /// The bytes differ from those that were written.
    #[error("its content is damaged: its bytes do not match the stored hash")]
    Changed,
    /// A part is missing or invalid.
    #[error("its {part}: {reason}")]
    Part {
        /// The part: `head`, `plan`, `weights` or `kernels`.
        part: &'static str,
        /// The reason.
        reason: String,
    },
    /// The weights are invalid.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

impl PackageError {
    pub(crate) fn part(part: &'static str, reason: impl ToString) -> Self {
        Self::Part { part, reason: reason.to_string() }
    }
}

/// Decodes a part that holds JSON.
pub(super) fn decoded<T: DeserializeOwned>(part: &'static str, json: &[u8]) -> Result<T, PackageError> {
    let text = str::from_utf8(json).map_err(|error| PackageError::part(part, error))?;
    serde_json::from_str(text).map_err(|error| PackageError::part(part, error))
}

impl Coded for PackageError {
    fn code(&self) -> &'static str {
        match self {
            Self::File { source, .. } | Self::Tables { source, .. } => source.code(),
            Self::Weights(source) => source.code(),
            other => other.into(),
        }
    }
}
