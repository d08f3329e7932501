use super::Version;
use crate::weights::WeightsError;
use rewire_graph::Coded;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why a package could not be read or made.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "package.")]
#[non_exhaustive]
pub enum PackageError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is read, but its content is not good.
    #[error("{} is not a good package", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<PackageError>,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file beside the package has to hold its tables, and does not.
    #[error("{} does not hold the tables of the package", path.display())]
    Tables {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<PackageError>,
    },
    /// The file holds tables, and not those that are meant.
    #[error("its tables are others: names, types, shapes or content differ")]
    OtherTables,
    /// Its tables are in a file of their own, which was not given.
    #[error("its tables are in the file `{file}`: read both")]
    NoTables {
        /// The name of the file.
        file: String,
    },
    /// It is something else.
    #[error("it does not begin as a package does")]
    NotPackage,
    /// It was written by a program that came after this one.
    #[error("it has format {format}: this program reads up to {newest}, rewire {program} reads it")]
    Newer {
        /// Its format.
        format: u32,
        /// The newest format that this program reads.
        newest: u32,
        /// The program that wrote it.
        program: Version,
    },
    /// It was cut, or something was added.
    #[error("it has {actual} bytes: expected {expected}")]
    Length {
        /// Bytes that it had when it was written.
        expected: u64,
        /// Bytes that there are.
        actual: u64,
    },
    /// Its bytes are not those that were written.
    #[error("its content is not what was written: the hash of its bytes differs from the one in it")]
    Changed,
    /// A part of it is not there, or not good.
    #[error("its {part}: {reason}")]
    Part {
        /// The part: `head`, `plan`, `weights` or `kernels`.
        part: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Its weights are not good.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

impl PackageError {
    pub(crate) fn part(part: &'static str, reason: impl ToString) -> Self {
        Self::Part { part, reason: reason.to_string() }
    }
}

/// What a part holds as JSON.
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
