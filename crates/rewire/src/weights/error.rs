use rewire_graph::{Coded, TensorSizeError};
use safetensors::SafeTensorError;
use std::path::PathBuf;
use strum::IntoStaticStr;
use thiserror::Error;

/// Why weights could not be read.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "weights.")]
#[non_exhaustive]
pub enum WeightsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file was read, but its content is invalid.
    #[error("{} is not a valid weights file", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<WeightsError>,
    },
    /// The bytes are not a safetensors file, or it is damaged or truncated.
    #[error("{reason} ({bytes} bytes): expected a complete safetensors file")]
    Format {
        /// The reason.
        reason: String,
        /// Length in bytes.
        bytes: usize,
    },
    /// There is not enough memory for the bytes of a file.
    #[error("no memory for the {bytes} bytes of a weights file")]
    Memory {
        /// Bytes of its tensors.
        bytes: usize,
    },
    /// There is not enough memory for a tensor.
    #[error("`{name}`: {source}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Its type, shape and size.
        source: TensorSizeError,
    },
    /// A tensor has an unsupported element type.
    #[error(
        "tensor `{name}` is {dtype}: expected F32, F16, BF16, I64, I32, U32, BOOL, or U8 rows with a scale and a bias"
    )]
    ElementType {
        /// Name of the tensor.
        name: String,
        /// Its element type, as named by safetensors.
        dtype: String,
    },
}

impl Coded for WeightsError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

/// Converts an error of the parser.
pub(super) fn format_error(error: &SafeTensorError, bytes: usize) -> WeightsError {
    let reason = match error {
        SafeTensorError::HeaderTooSmall => "the file ends before its header".to_owned(),
        SafeTensorError::InvalidHeaderLength => "the header reaches beyond the end of the file".to_owned(),
        SafeTensorError::MetadataIncompleteBuffer => "the tensors do not end where the file ends".to_owned(),
        error => error.to_string(),
    };
    WeightsError::Format { reason, bytes }
}
