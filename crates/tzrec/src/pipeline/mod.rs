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
    /// The text is not a configuration: a syntax error, an unknown field or a value of another type.
    #[error("line {line}, column {column}: {reason}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The reason.
        reason: String,
    },
    /// There is no reader of configurations: the feature `pipeline` is left out.
    #[error(
        "this build has no reader of pipeline configurations: build the program with `--features tzrec`, and `rewire-tzrec` with the feature `pipeline`"
    )]
    NoReader,
    /// The embedded descriptors are broken.
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
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is larger than 16 MiB, and those of [`Pipeline::parse`].
    pub fn read(path: &Path) -> Result<Self, PipelineError> {
        let failed = |source| PipelineError::Read { path: path.to_owned(), source };
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        if bytes > MOST_BYTES {
            return Err(PipelineError::TooLarge { path: path.to_owned(), bytes });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(failed)?)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// Syntax errors, unknown fields and values of other types, with line and column; [`PipelineError::NoReader`] without the feature `pipeline`.
    #[cfg(feature = "pipeline")]
    pub fn parse(text: &str) -> Result<Self, PipelineError> {
        text::parse(text)
    }

    /// Fails: this build has no reader.
    ///
    /// # Errors
    /// Always [`PipelineError::NoReader`].
    #[cfg(not(feature = "pipeline"))]
    pub fn parse(_: &str) -> Result<Self, PipelineError> {
        Err(PipelineError::NoReader)
    }

    /// The configuration with the field names of the file: repeated fields as arrays, enums by name, the member of a oneof
    /// under its own key, floats as their shortest decimal (infinities and NaN as strings), maps as objects. A field that is
    /// absent from the file is absent here.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The line of a field, from 1, by its [JSON pointer](Value::pointer). For a missing field, the line of the innermost
    /// message that would contain it; 1 for the whole.
    pub fn line(&self, pointer: &str) -> usize {
        self.lines.line(pointer)
    }
}
