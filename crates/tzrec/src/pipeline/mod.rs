//! Pipeline configurations as JSON.

mod json;
mod lines;

use lines::Lines;
use miette::Diagnostic;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use thiserror::Error;

/// `proto/tzrec.proto`, compiled.
const DESCRIPTORS: &[u8] = include_bytes!("../../proto/tzrec.bin");

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
    /// The file cannot be read, is larger than 16 MiB, or is not a configuration.
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
    /// Syntax errors, unknown fields and values of other types, with line and column.
    pub fn parse(text: &str) -> Result<Self, PipelineError> {
        let error = |at: usize, reason: String| {
            let (line, column) = lines::position(text, at);
            PipelineError::Syntax { line, column, reason }
        };
        // The parser recurses into messages: their depth is bounded before it runs.
        let lines = Lines::scan(text).map_err(|at| error(at, format!("more than {} nested messages", lines::DEPTH)))?;
        let message = DynamicMessage::parse_text_format(root()?, text).map_err(|found| {
            let label = found.labels().and_then(|mut labels| labels.next());
            error(label.map_or(text.len(), |label| label.offset()), found.to_string())
        })?;
        Ok(Self { json: json::object(&message), lines })
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

/// The descriptor of a whole configuration.
fn root() -> Result<MessageDescriptor, PipelineError> {
    static ROOT: OnceLock<Result<MessageDescriptor, String>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let pool = DescriptorPool::decode(DESCRIPTORS).map_err(|error| error.to_string())?;
        pool.get_message_by_name("tzrec.EasyRecConfig").ok_or_else(|| "no EasyRecConfig".to_owned())
    });
    root.clone().map_err(PipelineError::Descriptors)
}
