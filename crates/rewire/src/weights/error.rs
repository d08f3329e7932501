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
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is read, but its content is not good.
    #[error("{} is not a good weights file", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<WeightsError>,
    },
    /// The bytes are no safetensors file: damaged, truncated or something else.
    #[error("{reason}, {bytes} bytes in all: expected a whole safetensors file")]
    Format {
        /// What is wrong.
        reason: String,
        /// Bytes there are.
        bytes: usize,
    },
    /// There is no room for the bytes of a file.
    #[error("no memory for the {bytes} bytes of a weights file")]
    Memory {
        /// Bytes of its tensors.
        bytes: usize,
    },
    /// There is no memory for a tensor.
    #[error("`{name}`: {source}")]
    Tensor {
        /// Name of the tensor.
        name: String,
        /// Its type, shape and size.
        source: TensorSizeError,
    },
    /// A tensor has an element type that cannot be used.
    #[error(
        "tensor `{name}` is {dtype}: expected F32, F16, BF16, I64, I32, U32, BOOL, or U8 rows with a scale and a bias"
    )]
    ElementType {
        /// Name of the tensor.
        name: String,
        /// Its element type, as safetensors names it.
        dtype: String,
    },
}

impl Coded for WeightsError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

/// What the parser says of a file.
pub(super) fn format_error(error: &SafeTensorError, bytes: usize) -> WeightsError {
    let reason = match error {
        SafeTensorError::HeaderTooSmall => "the file ends before its header".to_owned(),
        SafeTensorError::InvalidHeaderLength => "the header reaches beyond the end of the file".to_owned(),
        SafeTensorError::MetadataIncompleteBuffer => "the tensors do not end where the file ends".to_owned(),
        error => error.to_string(),
    };
    WeightsError::Format { reason, bytes }
}
