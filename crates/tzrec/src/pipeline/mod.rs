//! Pipeline configurations as JSON.

#[cfg(feature = "pipeline")]
mod json;
#[cfg_attr(not(feature = "pipeline"), expect(dead_code))]
mod lines;
#[cfg(feature = "pipeline")]
mod text;

use lines::Lines;
use serde_json::Value;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum size of a configuration in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Why a configuration could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is too large for a configuration.
    #[error("{} has {bytes} bytes: expected a pipeline configuration of at most {MOST_BYTES}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The text is not a valid configuration: a syntax error, an unknown field or a value of the wrong type.
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The reason.
        reason: String,
    },
    /// This build cannot parse configurations, because the feature `pipeline` is disabled.
    #[error(
        "this build has no reader of pipeline configurations: build the program with `--features tzrec`, and `rewire-tzrec` with the feature `pipeline`"
    )]
    NoReader,
    /// The embedded message descriptors are invalid.
    #[error("internal error: the descriptors of pipeline configurations cannot be read: {0}")]
    Descriptors(String),
}

/// A pipeline configuration.
///
/// ```
/// let text = "model_config { feature_groups: [{group_name: 'deep'},\n {group_name: 'wide' group_type: WIDE}] },";
/// let pipeline = rewire_tzrec::Pipeline::parse(text)?;
/// assert_eq!(pipeline.json()["model_config"]["feature_groups"][1]["group_type"], "WIDE");
/// assert_eq!(pipeline.line("/model_config/feature_groups/1/group_type"), 2);
/// # Ok::<(), rewire_tzrec::PipelineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pipeline {
    json: Value,
    lines: Lines,
}

impl Pipeline {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// As [`Pipeline::parse`], and if the file cannot be read or is larger than 16 MiB.
    pub fn read(path: &Path) -> Result<Self, PipelineError> {
        let failed = |source| PipelineError::Read { path: path.to_owned(), source };
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        if bytes > MOST_BYTES {
            return Err(PipelineError::TooLarge { path: path.to_owned(), bytes });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(failed)?)
    }

    /// Parses a configuration in protobuf text format.
    ///
    /// # Errors
    /// Syntax errors, unknown fields and values of the wrong type, each with line and column. [`PipelineError::NoReader`] without the
    /// feature `pipeline`.
    #[cfg(feature = "pipeline")]
    pub fn parse(text: &str) -> Result<Self, PipelineError> {
        text::parse(text)
    }

    /// Always fails: this build cannot parse configurations.
    ///
    /// # Errors
    /// Always [`PipelineError::NoReader`].
    #[cfg(not(feature = "pipeline"))]
    pub fn parse(_: &str) -> Result<Self, PipelineError> {
        Err(PipelineError::NoReader)
    }

    /// The configuration as JSON, with the field names of the file. Repeated fields are arrays, enums are names, the member of a oneof is
    /// under its own key, floats are their shortest decimal (infinities and NaN are strings), maps are objects. Fields that the file does
    /// not set are missing.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The line of a field by its [JSON pointer](Value::pointer), from 1. For a missing field, the line of the innermost message that would
    /// contain it, which is 1 for the configuration itself.
    pub fn line(&self, pointer: &str) -> usize {
        self.lines.line(pointer)
    }
}
