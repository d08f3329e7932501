use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a checkpoint could not be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The folder does not contain a checkpoint.
    #[error("{} is not a checkpoint: expected a folder `model.ckpt-N`, a folder of these, or a .safetensors file", path.display())]
    NotCheckpoint {
        /// The file or folder.
        path: PathBuf,
    },
    /// The content of a file is invalid.
    #[error("{} is not a valid checkpoint file", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<CheckpointError>,
    },
    /// A pickle is truncated, invalid, or has an opcode that tensors do not need.
    #[error("its pickle is not valid at byte {at}: {reason}")]
    Pickle {
        /// Byte offset in the pickle.
        at: usize,
        /// The reason.
        reason: String,
    },
    /// A pickle refers to a function or class that is not used in checkpoints of tensors.
    #[error("its pickle refers to `{name}`, which tensor checkpoints do not use: nothing was executed")]
    Global {
        /// `module.name`.
        name: String,
    },
    /// The metadata contains something other than valid tensors.
    #[error("its metadata: {reason}")]
    Metadata {
        /// The reason.
        reason: String,
    },
    /// A path in the metadata leaves the folder.
    #[error("its metadata names the file `{path}`: expected the name of a file in the same folder")]
    Traversal {
        /// The path in the metadata.
        path: String,
    },
    /// A tensor cannot be read from its shards, or cannot be written.
    #[error("tensor `{name}`: {reason}")]
    Tensor {
        /// The name of the tensor.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The checkpoint has no tensor of that name.
    #[error("there is no tensor `{name}`")]
    Missing {
        /// The name.
        name: String,
    },
}

impl CheckpointError {
    pub(super) fn metadata(reason: impl ToString) -> Self {
        Self::Metadata { reason: reason.to_string() }
    }

    pub(super) fn tensor(name: &str, reason: impl ToString) -> Self {
        Self::Tensor { name: name.to_owned(), reason: reason.to_string() }
    }

    pub(super) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Read { path, source }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Write { path, source }
    }

    pub(super) fn file(path: &Path) -> impl FnOnce(Self) -> Self {
        let path = path.to_owned();
        |source| Self::File { path, source: Box::new(source) }
    }
}
